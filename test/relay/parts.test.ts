/** Messages in parts: joined in any order, bounded where parts never come, and nothing made of what is none. */
import { expect, it } from 'vitest';
import { Joined, partsOf } from '../../src/relay/parts.ts';

const MOST = 1_000;
const bytes = (part: string | Uint8Array): Uint8Array =>
  typeof part === 'string' ? Buffer.from(part) : part;

it('joins the parts of several messages in any order, each part once', () => {
  const joined = new Joined();
  const messages = ['ü'.repeat(5_000), '€uro'.repeat(3_000), 'short'];
  const parts = messages.flatMap((message) => partsOf(message, MOST).map(bytes)).reverse();
  expect(parts.every(({ byteLength }) => byteLength <= MOST)).toBe(true);
  const heard = parts.slice(0, -1).flatMap((part) => [joined.add(part), joined.add(part)]);
  heard.push(joined.add(parts.at(-1) ?? new Uint8Array()));
  expect(heard.filter((text) => text !== undefined && text !== 'short').sort()).toEqual(
    messages.slice(0, 2).sort(),
  );
  expect(heard).toContain('short');
});

it('drops messages whose other parts never come, the oldest first', () => {
  const joined = new Joined();
  const part = (id: string, at: number, text: string): string | undefined =>
    joined.add(Buffer.from(`\0${id} ${at} 2\n${text}`));
  part('first', 0, 'a');
  for (let n = 0; n < 100; n += 1) part(`more${n}`, 0, 'b');
  expect(part('first', 1, 'c')).toBeUndefined();
  expect(part('more99', 1, 'c')).toBe('bc');
});

it('ignores a part that is malformed', () => {
  const joined = new Joined();
  for (const text of ['\0', '\0\n', '\0id 1 1\nx', '\0id -1 2\nx', '\0id 0.5 2\nx', '\0id 0 1e99\nx']) {
    expect(joined.add(Buffer.from(text))).toBeUndefined();
  }
});

it('drops a message of any number of parts without bytes', () => {
  const joined = new Joined();
  const part = (id: string, at: number, count: number): string | undefined =>
    joined.add(Buffer.from(`\0${id} ${at} ${count}\n`));
  expect(part('more than could be', 0, 67_108_864)).toBeUndefined();
  for (let at = 1; at < 300_000; at += 1) part('many', at, 500_000);
  joined.add(Buffer.from('\0whole 0 2\na'));
  expect(joined.add(Buffer.from('\0whole 1 2\nb'))).toBe('ab');
  expect(joined.bytes).toBeLessThanOrEqual(67_108_864);
});
