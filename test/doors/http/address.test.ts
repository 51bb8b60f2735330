/** Addresses in headers of reverse proxies, in every spelling that one of them writes. */
import { expect, it } from 'vitest';
import { lastForwarded } from '../../../src/doors/http/address.ts';

it.each([
  ['203.0.113.7', '203.0.113.7'],
  ['10.0.0.1, 203.0.113.7', '203.0.113.7'],
  ['203.0.113.7:51000', '203.0.113.7'],
  ['2001:db8::1', '2001:db8::1'],
  ['2001:0DB8:0:0:0:0:0:1', '2001:db8::1'],
  ['[2001:db8::1]:51000', '2001:db8::1'],
  ['unknown', 'unknown'],
  ['1.2.3.4, ', ''],
  ['', ''],
  ['not an address', 'not an address'],
])('the last entry of %j is %j', (header, address) => {
  expect(lastForwarded(header)).toBe(address);
});
