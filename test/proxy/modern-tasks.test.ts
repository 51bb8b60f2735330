/** How a call ends of which a server of 2026-07-28 made a task. */
import { expect, it } from 'vitest';
import { followTask } from '../../src/proxy/modern-tasks.ts';

it.each([
  ['the server’s own words', { statusMessage: 'out of quota' }, 'out of quota'],
  ['words of ours', {}, 'The task was cancelled'],
])('a cancelled task ends its call with %s', async (_, said, message) => {
  const request = async () => ({ result: { taskId: 't', status: 'cancelled', ...said } });
  expect(await followTask('t', {}, request, new AbortController().signal)).toEqual({
    error: { code: -32000, message },
  });
});
