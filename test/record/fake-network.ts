/** Stands where the network is, from before `mcp-await/record` takes it: each request gets a number of its own. */
export const sent: string[] = [];

globalThis.fetch = async (input) => {
  sent.push(String(input));
  return Response.json({ number: sent.length });
};
