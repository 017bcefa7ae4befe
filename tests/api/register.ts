// Registers a device by the client that test_clients.py has generated: node register.js url key user_id.
import createClient from "openapi-fetch";
import type { components, paths } from "./cupo.js";

declare const process: { argv: string[] };

const [url, key, userId] = process.argv.slice(2) as [string, string, string];
const cupo = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

const body: components["schemas"]["NewDevice"] = { device_id: "from-typescript", name: "Ana 📱" };
const { data, error, response } = await cupo.POST("/v1/users/{user_id}/devices", {
  params: { path: { user_id: userId } },
  body,
});
if (error !== undefined) {
  throw new Error(`${error.code}: ${error.detail}`);
}
const used: number = data.quota.used;
console.log(JSON.stringify({ status: response.status, device_id: data.device.device_id, name: data.device.name, used }));
