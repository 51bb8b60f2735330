// Loaded before @upstash/context7-mcp: answers of its API, which also say that the user is to be asked to sign in. Its
// tools do not wait for the answer.
const library = {
  id: '/shop/cart',
  title: 'cart',
  description: 'a cart',
  totalSnippets: 1,
  trustScore: 9,
  benchmarkScore: 90,
  versions: [],
};

globalThis.fetch = async (url) => {
  const headers = { 'x-context7-auth-prompt': '1' };
  return String(url).includes('/search')
    ? Response.json({ results: [library] }, { headers })
    : new Response('a cart holds items', { headers });
};
