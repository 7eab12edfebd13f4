"use strict";
const part = document.getElementById("live");
const timer = setInterval(async () => {
  const answer = await fetch("/live");
  if (!answer.ok) return;
  const text = await answer.text();
  if (text !== part.innerHTML) part.innerHTML = text;
  if (!part.querySelector("progress")) clearInterval(timer);
}, 500);
