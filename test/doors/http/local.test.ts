/** Which callers without a name count as the one person at this machine. */
import { expect, it } from 'vitest';
import { isLocal } from '../../../src/doors/http/local.ts';

const from = (address: string | undefined, headers: Record<string, string>): boolean =>
  isLocal({ ...(address !== undefined && { address }), header: (name) => headers[name] });

it.each(['127.0.0.1', '::1', '::ffff:127.0.0.1', '127.8.9.1'])('a socket from %s is local', (address) => {
  for (const host of ['localhost', 'localhost:3000', '127.0.0.1:3000', '[::1]:3000']) {
    expect(from(address, { host })).toBe(true);
  }
});

it.each([undefined, '192.0.2.1', '2001:db8::1', '::ffff:192.0.2.1'])('one from %s is not', (address) => {
  expect(from(address, { host: 'localhost' })).toBe(false);
});

it.each(['example.com', 'localhost.example.com', '192.0.2.1', ''])('for the host "%s" it is not', (host) => {
  expect(from('127.0.0.1', { host })).toBe(false);
});

it.each([
  'forwarded',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'cf-connecting-ip',
  'true-client-ip',
])('behind a proxy that adds %s it is not', (name) => {
  expect(from('127.0.0.1', { host: 'localhost', [name]: '127.0.0.1' })).toBe(false);
});
