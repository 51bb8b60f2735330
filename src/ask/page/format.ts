/**
 * The formats of a text in an elicitation, as the SDKs' validators take them, each in linear time. The caller's check
 * by the whole schema has the last word; these give the field its own sentence.
 */
import type { TextFormat } from './field.ts';

interface Format {
  isMet(text: string): boolean;
  /** What to do where it is not met. */
  readonly advice: string;
}

const ATOM = /^[\w!#$%&'*+/=?^`{|}~-]+$/;
const LABEL = /^[a-z\d](?:[a-z\d-]*[a-z\d])?$/i;
/** RFC 3986: a scheme, then the characters of a URI. */
const URI = /^[a-z][a-z\d+.-]*:(?:[\w.~:/?#[\]@!$&'()*+,;=-]|%[\da-f]{2})+$/i;
/** RFC 3339, section 5.6, without leap seconds. */
const DATE_TIME =
  /^(\d{4}-\d\d-\d\d)t(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

export const FORMATS: Readonly<Record<TextFormat, Format>> = {
  email: { isMet: isEmail, advice: 'Enter an email address, such as ann@example.com.' },
  uri: {
    isMet: (text) => URI.test(text) && URL.canParse(text),
    advice: 'Enter a whole URL, such as https://example.com/page.',
  },
  date: { isMet: isDate, advice: 'Enter a date as year, month and day, such as 2026-01-31.' },
  'date-time': {
    isMet: (text) => isDate(DATE_TIME.exec(text)?.[1] ?? ''),
    advice: 'Enter a date and time with its zone, such as 2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00.',
  },
};

function isEmail(text: string): boolean {
  const [local = '', domain = '', ...more] = text.split('@');
  const labels = domain.split('.');
  const isLocal = local.split('.').every((atom) => ATOM.test(atom));
  return more.length === 0 && isLocal && labels.length > 1 && labels.every((label) => LABEL.test(label));
}

function isDate(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  const date = new Date(`${text}T00:00:00Z`);
  // V8 reads 30 February as 2 March.
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text);
}
