package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"jettison/api"
)

// hostile is a pod's name that would be markup if it were not escaped.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// The page shows an eviction within a second of its log line, with its kill ladder and the freed
// memory.
func TestAnEvictionShowsAtOnce(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#live", "live since"))
	var took []time.Duration
	for i := range 5 {
		id := fmt.Sprintf("20260720T12000%d.000000Z-abcd", i)
		at := time.Now()
		a.evict(id, fmt.Sprintf("leaker-%d", i))
		b.until(fmt.Sprintf("document.querySelector('[data-id=\"%s\"]') !== null", id))
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	t.Logf("shown after %v", took)
	if took[2] > time.Second { // the median of five: a page that only polls would be later
		t.Errorf("half of the evictions are shown later than %v, want within a second", took[2])
	}
	text := eval[string](b, "document.querySelector('#eviction-list').innerText")
	for _, want := range []string{"shop/leaker-4", "recovered", "crossing to kill 4.1 ms", "kill to recovery 61.0 ms", "freed 790 MiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("eviction on the page lacks %q: %s", want, text)
		}
	}
	ladder := eval[string](b, "document.querySelector('details[open] .ladder').innerText")
	for _, want := range []string{"threshold crossed", "cgroup.kill", "+0.1 ms", "mrelease (5)", "no process left", "+38.0 ms", "StopPodSandbox", "sched_setattr"} {
		if !strings.Contains(ladder, want) {
			t.Errorf("ladder on the page lacks %q: %s", want, ladder)
		}
	}
	if amounts := eval[string](b, "document.querySelector('details[open] .amounts').innerText"); !strings.Contains(amounts, "812 MiB") || !strings.Contains(amounts, "790 MiB") {
		t.Errorf("predicted and real release on the page = %s", amounts)
	}
}

// The agent stops and restarts. The page shows since when it is unreachable, keeps its data, leaves
// a gap for that time, and continues.
func TestThePageSurvivesTheAgent(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	a.evict("20260720T120000.000000Z-abcd", "first")
	b.until(contains("#eviction-list", "shop/first"))
	b.until("document.querySelectorAll('svg .curve').length > 0")
	a.stop()
	b.until(contains("#alert", "The agent has been unreachable since"))
	if eval[bool](b, "document.querySelector('#alert').hidden") || !eval[bool](b, contains("#eviction-list", "shop/first")) {
		t.Error("what was known is not shown any more, or not that it is old")
	}
	if text := eval[string](b, "document.querySelector('figure .value').textContent"); text != "not observed" {
		t.Errorf("signal of an unreachable agent is shown as %s", text)
	}
	a.set(func() { a.records = a.records[:0] })
	a.start()
	b.until("document.querySelector('#alert').hidden")
	a.evict("20260720T120001.000000Z-abcd", "second")
	b.until(contains("#eviction-list", "shop/second"))
	b.until(contains("#eviction-list", "shop/first"))
	b.until("document.querySelector('figure svg').querySelectorAll('.curve').length === 2") // before and after
}

// Every pod name, chosen by a tenant, is shown as text.
func TestMarkupIsText(t *testing.T) {
	a := newAgent(t)
	a.set(func() { a.first = "shop/" + hostile })
	b := open(t, serve(t, a.path))
	a.evict("20260720T120000.000000Z-abcd", hostile)
	a.log.Warn("pod rejected", api.EventGate.Attr(), "pod", hostile, "reason", hostile, "message", hostile)
	a.log.Warn("garbage collected", api.EventGarbage.Attr(), "what", hostile)
	for _, selector := range []string{"#eviction-list", "#pod-table", "#gate-table", "#garbage-table", "#event-list", "#pods-text"} {
		b.until(contains(selector, hostile))
	}
	if eval[int](b, "document.images.length + document.querySelectorAll('main script').length") != 0 || strings.Contains(eval[string](b, "document.title"), "owned") {
		t.Error("the pod's name became markup")
	}
}

// reached presses Tab until the focus is back at the start, and returns the focused elements.
func (b *browser) reached() (out []string) {
	b.t.Helper()
	for range 120 {
		b.do(chromedp.KeyEvent(kb.Tab))
		is := eval[string](b, `(() => { const e = document.activeElement; return e === document.body ? '' :
			[e.closest('section')?.id ?? '', e.tagName.toLowerCase(), e.textContent.slice(0, 40).trim()].join(' ') })()`)
		if is == "" {
			return out
		}
		out = append(out, is)
	}
	return out
}

// The keyboard reaches each part, in the order of the page. The buttons of a table's head sort it.
// Arrow keys read a chart.
func TestTheKeyboardReachesAll(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	a.evict("20260720T120000.000000Z-abcd", "leaker")
	a.log.Info("pod rejected", api.EventGate.Attr(), "pod", "shop/web")
	b.until(contains("#eviction-list", "shop/leaker"))
	b.until(contains("#pod-table", "shop/leaker"))
	b.until("document.querySelectorAll('svg .curve').length > 0")
	at := -1
	reached := b.reached()
	for _, want := range []string{" a Skip to the signals", " a Signals", "signals select", "signals svg", "evictions summary", "pods select", "pods div", "pods button Pod", "gate div", "garbage div"} {
		next := slices.IndexFunc(reached, func(is string) bool { return strings.HasPrefix(is, want) })
		if next <= at {
			t.Errorf("element %q is not reached in order: %s", want, strings.Join(reached, "\n"))
		}
		at = next
	}
	order := func() string {
		return eval[string](b, "[...document.querySelectorAll('#pod-table tbody tr')].map((r) => r.children[1].textContent.replace('shop/', '')).join(' ')")
	}
	if got := order(); got != "leaker database-0 web-7f9c4 cache" {
		t.Errorf("table sorted by freed memory starts with %s", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("#pod-table th:nth-child(2) button")), chromedp.KeyEvent(kb.Enter))
	if got := order(); got != "cache database-0 leaker web-7f9c4" || eval[string](b, "document.querySelector('th[aria-sort]').textContent") != "Pod" {
		t.Errorf("table sorted by name starts with %s", got)
	}
	b.do(chromedp.KeyEvent(" "))
	if got := order(); got != "web-7f9c4 leaker database-0 cache" {
		t.Errorf("table sorted by name, descending, starts with %s", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("figure svg")), chromedp.KeyEvent(kb.ArrowLeft))
	if got := eval[string](b, "document.querySelector('figure .readout').textContent"); !strings.Contains(got, "UTC: 620 MiB") {
		t.Errorf("text of the chart under the cursor = %q", got)
	}
	b.do(chromedp.Focus(chromedp.CSS(".skip")), chromedp.KeyEvent(kb.Enter))
	if got := eval[string](b, "document.activeElement.id"); got != "signals" {
		t.Errorf("target of the skip link = %q", got)
	}
}

// The page is readable at any width, light and dark, without horizontal scrolling.
func TestItFitsAPhone(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#pod-table", "shop/leaker"))
	fall := []uint64{560, 500, 430, 360, 300, 240, 170, 120, 92, 880, 870, 868}
	for i, available := range fall {
		a.set(func() { a.available, a.short = available*mib, available < 100 })
		if available == 92 {
			a.evict("20260720T120000.000000Z-abcd", "leaker-with-a-name-that-goes-on-and-on-as-a-replica-set-would-have-it-7c9d8f6b5-x2x4z")
		}
		b.until(fmt.Sprintf("document.querySelector('figure .value').textContent.startsWith('%d MiB')", available))
		if i == 8 {
			b.until(contains("#eviction-list", "leaker"))
			b.looks(1280, 900, false, false)
			b.shot("short-light")
		}
	}
	a.log.Info("garbage collected", api.EventGarbage.Attr(), "what", "images", "trigger", "periodic", "planned", 3, "removed", 3, "failed", 0, "skipped", 0, "predicted", 734003200, "freed", 731906048, "took", 2310*time.Millisecond)
	a.log.Info("pod rejected", api.EventGate.Attr(), "pod", "shop/web-2", "uid", "u", "reason", "OutOfmemory", "message", "Node didn't have enough resource: memory, requested: 536870912, used: 900000000, capacity: 1073741824")
	b.until(contains("#gate-table", "OutOfmemory"))
	for _, screen := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 360, 740, false}, {"phone-dark", 360, 740, true}, {"tiny", 280, 600, false}} {
		b.looks(screen.width, screen.height, screen.dark, screen.width < 500)
		b.until(fmt.Sprintf("document.querySelector('figure svg').viewBox.baseVal.width <= %d", screen.width))
		if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > screen.width {
			t.Errorf("%s: %d pixels wide, the screen has %d: %s", screen.name, wide, screen.width, eval[string](b, `[...document.querySelectorAll('body *')]
				.filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll')).map((e) => e.tagName + '.' + e.className + '#' + e.id).join(' ')`))
		}
		b.shot(screen.name)
	}
}

// A page that is opened without its key shows what to do, and no data of the node.
func TestWithoutTheKey(t *testing.T) {
	a := newAgent(t)
	address, _, _ := strings.Cut(serve(t, a.path), "?")
	b := open(t, address)
	b.until(contains("#alert", "open the address that jettison ui printed"))
	if text := eval[string](b, "document.body.innerText"); strings.Contains(text, "worker-1") || strings.Contains(text, "leaker") {
		t.Error(text)
	}
	b.mu.Lock()
	b.errors = slices.DeleteFunc(b.errors, func(e string) bool { return strings.Contains(e, "403") })
	b.mu.Unlock()
}
