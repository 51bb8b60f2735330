// Loaded before @azure-devops/mcp: the part of its API that lists projects and teams, and a key chain that is not
// there, since its module is built by an install script.
import { EventEmitter } from 'node:events';
import https from 'node:https';
import Module from 'node:module';
import { Readable } from 'node:stream';

const load = Module._load;
Module._load = (request, ...rest) => (request.endsWith('.node') ? {} : load(request, ...rest));

const location = (id, resourceName, routeTemplate, area = 'core') => ({
  id,
  area,
  resourceName,
  routeTemplate,
  resourceVersion: 4,
  minVersion: '1.0',
  maxVersion: '7.2',
  releasedVersion: '7.1',
});
const LOCATIONS = [
  location('e81700f7-3be2-46de-8624-2eb35882fcaa', 'ResourceAreas', '_apis/{resource}/{areaId}', 'Location'),
  location('603fe2ac-9723-48b9-88ad-09305aa6c6e1', 'projects', '_apis/{resource}/{*projectId}'),
  location(
    'd30a3dd1-f8ba-442a-b86a-bd0c0c383e59',
    'teams',
    '_apis/projects/{projectId}/{resource}/{*teamId}',
  ),
];

function answer(method, path) {
  if (method === 'OPTIONS') return LOCATIONS;
  if (/\/teams(\?|$)/.test(path)) return [{ id: 't1', name: 'Web' }];
  return /\/projects(\?|$)/.test(path) ? [{ id: 'p1', name: 'Shop' }] : [];
}

https.request = ({ method, path }, onResponse) => {
  const value = answer(method, path);
  const response = Readable.from([JSON.stringify({ count: value.length, value })]);
  const headers = { 'content-type': 'application/json' };
  Object.assign(response, { statusCode: 200, headers });
  const request = Object.assign(new EventEmitter(), { write() {}, setTimeout() {} });
  request.end = () => setImmediate(onResponse, response);
  return request;
};
