/** Takes the tokens `ann` and `bob`, each that caller's. */
export const verifier = {
  async verifyAccessToken(token: string) {
    if (token !== 'ann' && token !== 'bob') throw new Error('unknown token');
    return {
      token,
      clientId: token,
      scopes: [],
      expiresAt: Math.floor(Date.now() / 1000) + 3_600,
      extra: { sub: token },
    };
  },
};
