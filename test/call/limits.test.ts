/** The bounds of a handler: what can be set, and the parts of one caller and of anonymous ones. */
import { describe, expect, it } from 'vitest';
import { LIMITS, limitsOf, tuned } from '../../src/call/limits.ts';

describe('limits', () => {
  it('change with the limit that they are a part of: strangers never have all of it', () => {
    const usual = limitsOf();
    expect(usual).toMatchObject({
      callerSessions: 200,
      anonymousSessions: 500,
      callerStoredBytes: 67_108_864,
    });
    const more = limitsOf({ limits: { sessions: 10_000, tasks: 20_000, calls: 30_000 } });
    expect(more).toMatchObject({ callerSessions: 2_000, anonymousSessions: 5_000 });
    expect(more).toMatchObject({ callerTasks: 2_000, anonymousTasks: 5_000, anonymousCalls: 15_000 });
    const less = limitsOf({ limits: { sessions: 10, argumentBytes: 67_108_864 } });
    expect(less).toMatchObject({
      callerSessions: 2,
      anonymousSessions: 5,
      callerArgumentBytes: 16_777_216,
    });
  });

  it.each(Object.keys(limitsOf()).filter((name) => !Object.hasOwn(LIMITS, name)))(
    '%s is no option, and tests set it',
    (name) => {
      expect(() => limitsOf({ limits: { [name]: 7 } })).toThrow(`option limits.${name} is no limit`);
      expect(limitsOf({ limits: { frames: 3 }, ...tuned({ [name]: 7 }) })).toMatchObject({
        [name]: 7,
        frames: 3,
      });
    },
  );
});
