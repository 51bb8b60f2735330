// Its management API is on loopback (SUPABASE_API), where the test sees the executed statements.
import process from 'node:process';
import { createSupabaseMcpServer } from '@supabase/mcp-server-supabase';
import { createSupabaseApiPlatform } from '@supabase/mcp-server-supabase/platform/api';

export default () =>
  createSupabaseMcpServer({
    platform: createSupabaseApiPlatform({ accessToken: 'test', apiUrl: process.env.SUPABASE_API }),
    projectId: 'abcdefghijklmnopqrst',
    features: ['database'],
    elicitation: {
      requestState: { key: 'a key of the mounts that is longer than 32 bytes', principal: 'ann' },
      confirmation: { enabledTools: ['execute_sql'] },
    },
  });
