// The JSON Schema of scenario files, for editors.
import { z } from 'zod/v4';

/** Takes the exports of src/compare/scenario-schema. */
export function scenarioJsonSchema({ rest, steps }) {
  const step = z.union([steps.call, steps.prompt, steps.read, steps.list]);
  return z.toJSONSchema(z.strictObject({ ...rest, steps: z.array(step).min(1) }), {
    // A function as a user cannot be in YAML.
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      if (zodSchema._zod.def.type === 'custom') Object.assign(jsonSchema, { not: {} });
    },
  });
}
