/** The user's own module of NestJS. */
import { Module } from '@nestjs/common';

@Module({})
export class AppModule {}
