import { describe, expect, it } from 'vitest';
import { Drawn, isOnce } from '../../src/call/frame/drawn.ts';
import { addDrawn } from '../../src/call/journal/drawn.ts';
import type { Completion } from '../../src/call/journal/entries.ts';

const at = (site: string, branch = '[]a') => ({ site, branch });
const fresh = () => 'fresh';

describe('what is drawn at a place', () => {
  it('is what was recorded there, in its order, and then afresh', () => {
    const drawn = new Drawn({ 'now a:1[]a': [1, 2], 'now b:1[]a': [3] }, [], 1_000);
    const values = ['now b:1', 'now a:1', 'now a:1', 'now a:1'].map((site) => drawn.draw(at(site), fresh));
    expect(values).toEqual([3, 1, 2, 'fresh']);
    expect(drawn.all()).toEqual({ drawn: { 'now a:1[]a': [1, 2, 'fresh'], 'now b:1[]a': [3] } });
  });

  it('is told by the line alone outside of branches, where there is one candidate', () => {
    const drawn = new Drawn({ 'now a:1[]a': [1], 'now a:1[0]a': [2], 'now b:1[]a': [3] }, [], 1_000);
    expect(drawn.draw(at('now a:1', '[]seen later'), fresh)).toBe(1);
    expect(drawn.draw(at('now a:1', '[]seen later'), fresh)).toBe('fresh');
  });

  it('is drawn afresh where there are two, and in a branch of its own', () => {
    const drawn = new Drawn({ 'now a:1[]a': [1], 'now a:1[]b': [2], 'now b:1[]a': [3] }, [], 1_000);
    expect(drawn.draw(at('now a:1', '[]c'), fresh)).toBe('fresh');
    expect(drawn.draw(at('now b:1', '[0]a'), fresh)).toBe('fresh');
  });

  it('is written once, and told from what a checkpoint has', () => {
    const drawn = new Drawn({ 'now a:1[]a': [1] }, [], 1_000);
    expect(drawn.takeUnwritten()).toEqual({});
    for (const value of ['one', 'two', 'three']) drawn.draw(at('now a:1'), () => value);
    expect(drawn.takeUnwritten()).toEqual({ drawn: { 'now a:1[]a': ['two', 'three'] } });
    expect(drawn.takeUnwritten()).toEqual({});
  });

  it('adds up over entries, in their order', () => {
    expect(addDrawn(undefined, undefined)).toEqual({});
    expect(addDrawn({ a: [1] }, undefined)).toEqual({ drawn: { a: [1] } });
    expect(addDrawn({ a: [1], b: [1] }, { a: [2], c: [3] })).toEqual({
      drawn: { a: [1, 2], b: [1], c: [3] },
    });
  });
});

const steps = (...paths: string[]): Completion[] =>
  paths.map((path) => ({ kind: 'step', path, outcome: {} }));

describe('the path of what is done once', () => {
  it('is unique in its call, and no step has it', () => {
    const drawn = new Drawn({}, steps('charge#2', '/fetch x[]#1'), 1_000);
    const paths = [1, 2].map(() => drawn.pathOf({ site: 'fetch x', branch: '[]' }));
    expect(paths).toEqual(['/fetch x[]#1', '/fetch x[]#2']);
    expect([...paths, 'charge', 'order/charge'].map(isOnce)).toEqual([true, true, false, false]);
  });

  it('is the recorded one of the same request, unless that is surely in another branch', () => {
    const recorded = steps('/fetch x[0]#1', '/fetch y[]#1', '/fetch z[0]#1', '/fetch z[1]#1');
    const drawn = new Drawn({}, recorded, 1_000);
    const path = (site: string, branch: string) => drawn.pathOf({ site, branch });
    expect(path('fetch x', '[1]')).toBe('/fetch x[1]#1');
    expect(path('fetch x', '[]')).toBe('/fetch x[0]#1');
    expect(path('fetch y', '[2]')).toBe('/fetch y[]#1');
    expect(path('fetch z', '[]')).toBe('/fetch z[]#1');
  });
});
