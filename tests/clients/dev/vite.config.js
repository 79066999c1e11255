// Vite's dev server passes the API on to Wideroom, so that the page and the API have one origin.
const target = process.env.WIDEROOM ?? "http://127.0.0.1:8080";

export default {
  server: { proxy: { "/graphql": { target, ws: true }, "/demo/token": { target } } },
};
