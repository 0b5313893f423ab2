// The slider of the target, the monthly bill and texts under the pointer.
// Figures and their texts come from Python; the only arithmetic here is the bill of a month.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
document.documentElement.classList.add("has-script");

// As Python rounds: exactly, and to the even digit where two are equally near.
function rounded(amount, digits) {
  const exact = amount.toFixed(60);
  const kept = exact.slice(0, exact.length - 60 + digits);
  const isTie = /^50*$/.test(exact.slice(kept.length));
  return isTie && "02468".includes(kept.at(-1)) ? kept : amount.toFixed(digits);
}

// As mildroute._format.as_dollars writes money.
function asDollars(amount) {
  const digits = amount >= 1 || amount === 0 ? 2 : 1 - Math.floor(Math.log10(amount));
  const [dollars, cents] = rounded(amount, digits).split(".");
  return "$" + dollars.replace(/\B(?=(\d{3})+$)/g, ",") + "." + cents;
}

function requestsPerMonth() {
  const field = byId("requests");
  const wanted = field.value === "" ? NaN : Number(field.value);
  return wanted >= 0 && wanted <= 1e15 ? wanted : NaN;
}

function shownTarget() {
  const slider = byId("target");
  return slider === null ? null : data.targets[Number(slider.value)];
}

function showMonth() {
  const requests = requestsPerMonth();
  const isNumber = !Number.isNaN(requests);
  const money = (dollarsPer1000) => (isNumber ? asDollars((dollarsPer1000 * requests) / 1000) : "none");
  byId("requests").setAttribute("aria-invalid", String(!isNumber));
  byId("requests-hint").hidden = isNumber;
  byId("month-ours").textContent = money(data.bill);
  byId("month-theirs").textContent = money(data.reference_bill);
  byId("month-difference").textContent = money(Math.abs(data.reference_bill - data.bill));
  for (const shown of document.querySelectorAll(".requests-shown")) {
    shown.textContent = isNumber ? requests.toLocaleString("en-US") : "none";
  }
  const target = shownTarget();
  if (target !== null) byId("target-month").textContent = money(target.dollars_per_1000);
}

function showTarget() {
  const target = shownTarget();
  const slider = byId("target");
  for (const [name, text] of Object.entries(target.text)) byId("target-" + name).textContent = text;
  slider.setAttribute("aria-valuetext", "keep " + target.text.target);
  for (const part of document.querySelectorAll("#target-shares [data-index]")) {
    const index = Number(part.dataset.index);
    part.hidden = target.shares[index] === 0;
    if (part.tagName === "I") part.style.width = 100 * target.shares[index] + "%";
    const text = part.querySelector("b");
    if (text !== null) text.textContent = target.share_text[index];
  }
  for (const picture of document.querySelectorAll("figure svg")) markTarget(picture, Number(slider.value));
  showMonth();
}

// The spots of targets come first in a picture, in the order of the slider.
function markTarget(picture, index) {
  const spot = picture.querySelectorAll(".spots use")[index];
  let mark = picture.querySelector(".mark");
  if (mark === null) {
    mark = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    mark.setAttribute("class", "mark");
    mark.setAttribute("r", "7");
    picture.append(mark);
  }
  mark.setAttribute("cx", spot.getAttribute("x"));
  mark.setAttribute("cy", spot.getAttribute("y"));
}

function nearestSpot(event, spots) {
  let nearest = null;
  let distance = 24;
  for (const spot of spots) {
    const box = spot.getBoundingClientRect();
    const away = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
    if (away < distance) [nearest, distance] = [spot, away];
  }
  return nearest;
}

function showSpotTexts(figure) {
  const tip = byId("tip");
  const texts = new Map();
  for (const picture of figure.querySelectorAll("svg")) {
    picture.querySelectorAll(".spots use").forEach((spot, index) => texts.set(spot, data.spots[index]));
  }
  const follow = (event) => {
    const spot = nearestSpot(event, texts.keys());
    tip.hidden = spot === null;
    if (spot === null) return;
    tip.textContent = texts.get(spot);
    const inside = figure.getBoundingClientRect();
    const at = spot.getBoundingClientRect();
    const left = Math.min(at.right - inside.left, inside.width - tip.offsetWidth - 4);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, at.top - inside.top - tip.offsetHeight) + "px";
  };
  figure.addEventListener("pointermove", follow);
  figure.addEventListener("pointerdown", follow);
  figure.addEventListener("pointerleave", () => (tip.hidden = true));
}

if (byId("requests") !== null) byId("requests").addEventListener("input", showMonth);
if (byId("target") !== null) {
  byId("target").addEventListener("input", showTarget);
  showTarget();
}
if (byId("tip") !== null) showSpotTexts(byId("tip").parentElement);
