/** A controller of `@rekog/mcp-nest` whose tool asks. */
import { Ctx } from '@nestjs/microservices';
import { type McpContext, McpController, Tool } from '@rekog/mcp-nest';

@McpController()
export class GreetingController {
  @Tool({ name: 'greet', description: 'Greets its user by name' })
  async greet(@Ctx() ctx: McpContext) {
    const answer = await ctx.mcpServer.server.elicitInput({
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    });
    const { user } = ctx.getArgs()[3] as { user?: { clientId?: string } };
    return { content: [{ type: 'text', text: `${user?.clientId}: ${answer.content?.name}` }] };
  }
}
