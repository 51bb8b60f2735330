/** The conditions that a secret must meet to seal tokens. */
import { optionError } from '../base/values.ts';

/** Least length of a secret, in bytes. */
const LEAST = 32;
/** Least bits that a secret must hold by the frequencies of its characters: 32 random bytes have 150 and more. */
const LEAST_BITS = 100;

const HOW = "Make one with: node -e \"console.log(require('crypto').randomBytes(32).toString('base64url'))\"";

/** Several in a text, such as a variable during a rotation: with commas or line ends between them. */
export function secretsIn(texts: readonly string[]): string[] {
  return texts
    .flatMap((text) => text.split(/[,\n\r]/))
    .map((secret) => secret.trim())
    .filter((secret) => secret !== '');
}

function isLong(secret: string): boolean {
  return Buffer.byteLength(secret) >= LEAST;
}

/**
 * Checks secrets before anything uses them. A text is several if all of its parts are long enough; another one with a
 * comma in it is one secret.
 * @returns each by itself
 * @throws AwaitError `bad-option`; the message names the fault
 */
export function checkedSecrets(secrets: unknown): readonly string[] {
  if (!Array.isArray(secrets) || secrets.length === 0)
    throw optionError('option secrets must be an array with at least one secret.');
  const texts: unknown[] = secrets.flatMap((text) => {
    const parts = typeof text === 'string' ? secretsIn([text]) : [];
    return parts.length > 0 && parts.every(isLong) ? parts : [text];
  });
  return texts.map((secret, index) => {
    if (typeof secret !== 'string' || !isLong(secret)) {
      const unset = secret === undefined ? 'is undefined (is the environment variable set?); it ' : '';
      throw optionError(`secrets[${index}] ${unset}must be a string of at least ${LEAST} bytes. ${HOW}`);
    }
    // Such as 43 equal letters: one block over and over.
    const isRepeated = (secret + secret).indexOf(secret, 1) < secret.length;
    if (isRepeated || bitsIn(secret) < LEAST_BITS)
      throw optionError(`secrets[${index}] can be guessed: it repeats itself. ${HOW}`);
    return secret;
  });
}

/**
 * Shannon's entropy of its characters, in bits: an upper bound of the work to guess it, so a low value proves that it
 * is weak.
 */
function bitsIn(secret: string): number {
  const counts = new Map<string, number>();
  for (const character of secret) counts.set(character, (counts.get(character) ?? 0) + 1);
  const { length } = secret;
  let bits = 0;
  for (const count of counts.values()) bits -= count * Math.log2(count / length);
  return bits;
}
