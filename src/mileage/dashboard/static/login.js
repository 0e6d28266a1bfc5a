// Goes on to the dashboard where the browser is logged in already: the cookie is not sent with the
// first request after a link on another site, but it is with this one.

const response = await fetch("/api/v1/session");
if (response.ok && (await response.json()).authenticated) location.replace("/");
