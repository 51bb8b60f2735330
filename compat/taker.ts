/** Whose share of the limits a request uses. */
import type { Taker } from '../src/base/allowance.ts';
import { countedAddress } from '../src/http/address.ts';
import type { Inbound } from '../src/http/exchange.ts';
import type { Services } from './services.ts';

export function takerOf({ principal }: Pick<Services, 'principal'>, inbound: Inbound): Taker {
  return { principal: principal(inbound.authInfo), address: countedAddress(inbound) };
}
