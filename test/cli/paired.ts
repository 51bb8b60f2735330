/** What a browser sends to the pages after its pairing: the cookie, and what it makes of the credentials in a URL. */

export function basicOf(url: string | null): string {
  const { username, password } = new URL(url ?? '');
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

export function cookieOf(reply: Response): string {
  return reply.headers.get('set-cookie')?.split(';')[0] ?? '';
}

export function credentialsOf(paired: Response): { cookie: string; authorization: string } {
  return { cookie: cookieOf(paired), authorization: basicOf(paired.headers.get('location')) };
}
