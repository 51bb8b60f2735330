// Loaded before @azure-devops/mcp: the part of its API that its asking tools use (one project, one team, one work item,
// and nothing that is written is kept), and a key chain that is not there, since its module is built by an install
// script.
import { EventEmitter } from 'node:events';
import { readFileSync } from 'node:fs';
import https from 'node:https';
import Module, { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';
import { Readable } from 'node:stream';

const load = Module._load;
Module._load = (request, ...rest) => (request.endsWith('.node') ? {} : load(request, ...rest));

const AREAS = 'e81700f7-3be2-46de-8624-2eb35882fcaa';
const PROJECTS = '603fe2ac-9723-48b9-88ad-09305aa6c6e1';
const TEAMS = 'd30a3dd1-f8ba-442a-b86a-bd0c0c383e59';
const ATTACHMENTS = 'e07b5fa4-1499-494d-a496-64b860fd64ff';

/** A resource under its id alone, so that a request says which one it is for. */
const location = (id, area) => ({
  id,
  area,
  resourceName: 'resource',
  routeTemplate: `_apis/${id}`,
  resourceVersion: 4,
  minVersion: '1.0',
  maxVersion: '7.2',
  releasedVersion: '7.1',
});

/** The resources that the API's client knows, from its source. */
function locations() {
  const require = createRequire(join(process.cwd(), 'package.json'));
  const known = ['CoreApi', 'WorkApi', 'WorkItemTrackingApi'].flatMap((name) => [
    ...readFileSync(require.resolve(`azure-devops-node-api/${name}.js`), 'utf8').matchAll(
      /"(\w+)", "([0-9a-f-]{36})"/g,
    ),
  ]);
  return [location(AREAS, 'Location'), ...known.map(([, area, id]) => location(id, area))];
}
const LOCATIONS = locations();
const ITEM = { id: 7, rev: 1, fields: { 'System.Title': 'The cart is empty' }, relations: [], workItems: [] };

function answer(method, path) {
  const list = (value) => ({ count: value.length, value });
  if (method === 'OPTIONS') return list(LOCATIONS);
  if (path.includes(AREAS)) return list([]);
  if (path.includes(TEAMS)) return list([{ id: 't1', name: 'Web' }]);
  if (path.includes(PROJECTS)) return list([{ id: 'p1', name: 'Shop' }]);
  // Its client takes the list or the item, as the resource has it.
  return { ...ITEM, ...list([ITEM]) };
}

https.request = ({ method, path }, onResponse) => {
  const isFile = path.includes(ATTACHMENTS) && method === 'GET';
  const body = isFile ? 'a note' : JSON.stringify(answer(method, path));
  const response = Readable.from([Buffer.from(body)]);
  const headers = { 'content-type': isFile ? 'text/plain' : 'application/json' };
  Object.assign(response, { statusCode: 200, headers });
  const request = Object.assign(new EventEmitter(), { write() {}, setTimeout() {} });
  request.end = () => setImmediate(onResponse, response);
  return request;
};
globalThis.fetch = async () => Response.json({ count: 1, value: [ITEM] });
