/** Whose share of the limits a request uses. */
import type { QuotaKey } from '../src/base/quota.ts';
import { countedAddress } from '../src/doors/http/address.ts';
import type { Inbound } from '../src/doors/http/exchange.ts';
import type { Services } from '../src/handler/services.ts';

export function quotaKeyOf({ principal }: Pick<Services, 'principal'>, inbound: Inbound): QuotaKey {
  return { principal: principal(inbound.authInfo), address: countedAddress(inbound) };
}
