/** Whose share of the limits a request uses. */
import type { Taker } from '../src/base/allowance.ts';
import { countedAddress } from '../src/doors/http/address.ts';
import type { Inbound } from '../src/doors/http/exchange.ts';
import type { Services } from '../src/handler/services.ts';

export function takerOf({ principal }: Pick<Services, 'principal'>, inbound: Inbound): Taker {
  return { principal: principal(inbound.authInfo), address: countedAddress(inbound) };
}
