/** Who a caller is where the option `principal` is not given. */
import { createSecretKey } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { defaultPrincipal } from '../../../src/doors/http/principal.ts';
import { jwt } from '../../security/service.ts';

const KEY = createSecretKey(Buffer.alloc(32, 7));

function principalOf() {
  const warnings: string[] = [];
  return {
    warnings,
    of: defaultPrincipal(
      () => KEY,
      (message) => warnings.push(message),
    ),
  };
}

describe('the default principal', () => {
  it('is what authInfo.extra says, before what the token does', () => {
    const { of, warnings } = principalOf();
    const token = jwt({ iss: 'https://other', sub: 'bob' });
    const name = '["https://idp","ann","app"]';
    expect(of({ token, clientId: 'app', extra: { iss: 'https://idp', sub: 'ann' } })).toBe(name);
    expect(of({ token: 'opaque', clientId: 'app', extra: { issuer: 'https://idp', userId: 'ann' } })).toBe(
      name,
    );
    expect(warnings).toEqual([]);
  });

  it('is issuer and subject of a JWT, whichever token it is', () => {
    const { of, warnings } = principalOf();
    const claims = { iss: 'https://idp', sub: 'ann' };
    const first = of({ token: jwt({ ...claims, exp: 1 }), clientId: 'app', scopes: [] });
    expect(first).toBe('["https://idp","ann","app"]');
    expect(of({ token: jwt({ ...claims, exp: 2 }), clientId: 'app', scopes: [] })).toBe(first);
    expect(of({ token: jwt({ ...claims, sub: 'bob' }), clientId: 'app' })).not.toBe(first);
    expect(of({ token: jwt({ ...claims, iss: 'https://other' }), clientId: 'app' })).not.toBe(first);
    expect(warnings).toEqual([]);
  });

  it('is a keyed digest of an opaque token, and says once what that costs', () => {
    const { of, warnings } = principalOf();
    const [one, other] = [of({ token: 'one', clientId: 'app' }), of({ token: 'other', clientId: 'app' })];
    expect(one).not.toBe(other);
    expect(of({ token: 'one', clientId: 'app' })).toBe(one);
    expect(one).not.toContain('"one"');
    const otherKey = createSecretKey(Buffer.alloc(32, 8));
    expect(
      defaultPrincipal(
        () => otherKey,
        () => {},
      )({ token: 'one', clientId: 'app' }),
    ).not.toBe(one);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatch(/with a new token a caller loses its calls.*principal:/);
  });

  it.each([
    ['has no subject', jwt({ iss: 'https://idp' })],
    ['has an empty subject', jwt({ sub: '' })],
    ['has a subject that is no string', jwt({ sub: 7 })],
    ['is no JSON', 'a.b.c'],
    ['is an array', `x.${Buffer.from('[]').toString('base64url')}.y`],
    ['has too many parts', `${jwt({ sub: 'ann' })}.more.parts`],
    ['is very long', `${'x'.repeat(70_000)}.${Buffer.from('{"sub":"ann"}').toString('base64url')}.y`],
  ])('takes a token that %s for an opaque one', (_what, token) => {
    const { of, warnings } = principalOf();
    expect(of({ token, clientId: 'app' })).toContain('{"token":');
    expect(warnings).toHaveLength(1);
  });

  it('is undefined without credentials, and the client if there is no token', () => {
    const { of } = principalOf();
    expect(of(undefined)).toBeUndefined();
    expect(of({})).toBeUndefined();
    expect(of({ clientId: 'app' })).toBe('[null,null,"app"]');
  });
});
