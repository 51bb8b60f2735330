/** Which fields seem to ask for a secret, which no server may ask for in a form (MCP 2025-11-25, elicitation). */
import type { Field } from './field.ts';

const WORDS = [
  'pass ?(?:word|phrase|code)s?',
  'passwd|pwd',
  'secrets?',
  'token',
  '(?:api|access|private|secret|encryption|recovery) ?keys?',
  'credentials?',
  'pin',
  'cvv2?|cvc2?|csc|card (?:verification|security) (?:code|value|number)|security code',
  '(?:credit|debit|bank|payment)? ?card (?:no|nr|num|number)',
  '(?:credit|debit|bank|payment) cards?',
  'otp|totp|(?:one time|verification|2fa|mfa) (?:code|password|pin)',
  'ssn|social security (?:no|number)',
];
const SENSITIVE = new RegExp(`\\b(?:${WORDS.join('|')})\\b`);

/**
 * Whether a field looks like a password, a key or a card number, by its name, title and description. Choices do not:
 * the server knows their values.
 */
export function isSensitive(name: string, { kind, title, description = '' }: Field): boolean {
  if (kind === 'choice' || kind === 'list') return false;
  return [name, title, description].some((text) => SENSITIVE.test(words(text)));
}

/** `apiKey`, `API_KEY` and `API-Key` as `api key`. */
function words(text: string): string {
  return text
    .replaceAll(/(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-.]+/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .toLowerCase();
}
