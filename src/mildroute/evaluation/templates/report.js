// The target slider, the monthly bill and the tooltips.
// Figures and their texts come from Python; only the monthly bill is computed here.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
document.documentElement.classList.add("has-script");

// Round like Python: exactly, with ties to the even digit.
function roundLikePython(amount, digits) {
  const exact = amount.toFixed(60);
  const truncated = exact.slice(0, exact.length - 60 + digits);
  const isTie = /^50*$/.test(exact.slice(truncated.length));
  return isTie && "02468".includes(truncated.at(-1)) ? truncated : amount.toFixed(digits);
}

// Format money like mildroute._format.format_dollars.
function asDollars(amount) {
  const digits = amount >= 1 || amount === 0 ? 2 : 1 - Math.floor(Math.log10(amount));
  const [dollars, cents] = roundLikePython(amount, digits).split(".");
  return "$" + dollars.replace(/\B(?=(\d{3})+$)/g, ",") + "." + cents;
}

function requestsPerMonth() {
  const field = byId("requests");
  const requests = field.value === "" ? NaN : Number(field.value);
  return requests >= 0 && requests <= 1e15 ? requests : NaN;
}

function currentTarget() {
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
  for (const element of document.querySelectorAll(".requests-shown")) {
    element.textContent = isNumber ? requests.toLocaleString("en-US") : "none";
  }
  const target = currentTarget();
  if (target !== null) byId("target-month").textContent = money(target.dollars_per_1000);
}

function showTarget() {
  const target = currentTarget();
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

// In a picture, the spots of targets come first, in the order of the slider.
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
    const spotDistance = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
    if (spotDistance < distance) [nearest, distance] = [spot, spotDistance];
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
    const figureBox = figure.getBoundingClientRect();
    const spotBox = spot.getBoundingClientRect();
    const left = Math.min(spotBox.right - figureBox.left, figureBox.width - tip.offsetWidth - 4);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, spotBox.top - figureBox.top - tip.offsetHeight) + "px";
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
