// What every script here reads: REDIS_URL, QUEUE (ticks) and PREFIX (bull) from the environment.
import { Redis } from "ioredis";

export const queueName = process.env.QUEUE ?? "ticks";
export const prefix = process.env.PREFIX ?? "bull";

export function connect() {
  const url = process.env.REDIS_URL;
  if (!url) {
    console.error("REDIS_URL is not set");
    process.exit(2);
  }
  const connection = new Redis(url, { maxRetriesPerRequest: null });
  connection.on("error", (error) => console.error(error.message));
  return connection;
}
