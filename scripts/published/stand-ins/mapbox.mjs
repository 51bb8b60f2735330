// Loaded before @mapbox/mcp-server: answers of its API with two places and two routes, among which its tools ask its
// user to choose.
const places = ['Frankfurt am Main', 'Frankfurt (Oder)'].map((name, at) => ({
  type: 'Feature',
  geometry: { type: 'Point', coordinates: [8 + at, 50] },
  properties: {
    mapbox_id: `place-${at}`,
    name,
    full_address: `${name}, Germany`,
    place_formatted: 'Germany',
    feature_type: 'place',
    coordinates: { longitude: 8 + at, latitude: 50 },
    context: { place: { name } },
  },
}));
const routes = [600, 900].map((duration) => ({
  duration,
  distance: duration * 10,
  weight: duration,
  weight_name: 'auto',
  geometry: {
    type: 'LineString',
    coordinates: [
      [8, 50],
      [9, 50],
    ],
  },
  legs: [{ summary: 'A 3', duration, distance: duration * 10, weight: duration, steps: [] }],
}));
const waypoints = [8, 9].map((longitude) => ({ name: '', distance: 0, location: [longitude, 50] }));

globalThis.fetch = async (url) =>
  Response.json(
    String(url).includes('/directions/')
      ? { code: 'Ok', uuid: 'one', routes, waypoints }
      : { type: 'FeatureCollection', features: places, attribution: 'none' },
  );
