package ui

import (
	"errors"
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

// memory is the figure of the signal for memory.
const memory = `document.querySelector('figure[data-signal="memory.available"]')`

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
	for _, want := range []string{"shop/leaker-4", "recovered", "crossing to kill 4.1 ms", "kill to recovery 61.0 ms", "freed 790Mi"} {
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
	if amounts := eval[string](b, "document.querySelector('details[open] .amounts').innerText"); !strings.Contains(amounts, "812Mi") || !strings.Contains(amounts, "790Mi") {
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
	if text := eval[string](b, memory+".querySelector('.value').textContent"); text != "not observed" {
		t.Errorf("signal of an unreachable agent is shown as %s", text)
	}
	a.set(func() { a.records = a.records[:0] })
	a.start()
	b.until("document.querySelector('#alert').hidden")
	a.evict("20260720T120001.000000Z-abcd", "second")
	b.until(contains("#eviction-list", "shop/second"))
	b.until(contains("#eviction-list", "shop/first"))
	b.until(memory + ".querySelectorAll('.curve').length === 2") // before and after
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
	for _, want := range []string{" a Skip to what is short", " a Signals", "signals select", "signals summary", "evictions summary",
		"pods select", "pods div", "pods button Pod", "gate div", "garbage div", "events select", "events input", "events summary"} {
		next := slices.IndexFunc(reached, func(is string) bool { return strings.HasPrefix(is, want) })
		if next <= at {
			t.Errorf("element %q is not reached in order: %s", want, strings.Join(reached, "\n"))
		}
		at = next
	}
	order := func() string {
		return eval[string](b, "[...document.querySelectorAll('#pod-table tbody tr')].map((r) => r.children[1].textContent.replace('shop/', '')).join(' ')")
	}
	if got := order(); got != "leaker cache web-7f9c4 database-0" {
		t.Errorf("table sorted by rank starts with %s", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("#pod-table th:nth-child(2) button")), chromedp.KeyEvent(kb.Enter))
	if got := order(); got != "cache database-0 leaker web-7f9c4" || eval[string](b, "document.querySelector('th[aria-sort]').textContent") != "Pod" {
		t.Errorf("table sorted by name starts with %s", got)
	}
	b.do(chromedp.KeyEvent(" "))
	if got := order(); got != "web-7f9c4 leaker database-0 cache" {
		t.Errorf("table sorted by name, descending, starts with %s", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("#healthy summary")), chromedp.KeyEvent(kb.Enter))
	b.until(memory + ".querySelector('svg').clientWidth > 0")
	b.do(chromedp.Focus(chromedp.CSS("figure[data-signal='memory.available'] svg")), chromedp.KeyEvent(kb.ArrowLeft))
	if got := eval[string](b, memory+".querySelector('.readout').textContent"); !strings.Contains(got, "UTC: 620Mi") {
		t.Errorf("text of the chart under the cursor = %q", got)
	}
	b.do(chromedp.Focus(chromedp.CSS(".skip")), chromedp.KeyEvent(kb.Enter))
	if got := eval[string](b, "document.activeElement.id"); got != "now" {
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
		b.until(fmt.Sprintf(memory+".querySelector('.value').textContent.startsWith('%dMi')", available))
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
		b.until(fmt.Sprintf(memory+".querySelector('svg').viewBox.baseVal.width <= %d", screen.width))
		if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > screen.width {
			t.Errorf("%s: %d pixels wide, the screen has %d: %s", screen.name, wide, screen.width, eval[string](b, `[...document.querySelectorAll('body *')]
				.filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll')).map((e) => e.tagName + '.' + e.className + '#' + e.id).join(' ')`))
		}
		b.shot(screen.name)
	}
}

// What is short comes first and large, with the next victim; healthy signals are one row.
func TestShortComesFirst(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#headline", "Nothing is short."))
	b.until(contains("#healthy-row", "4 healthy signals"))
	b.until(contains("#next", "shop/leaker would be evicted first for memory.available<100Mi: uses 812Mi"))
	if n := eval[int](b, "[...document.querySelectorAll('#healthy-charts figure')].filter((e) => e.checkVisibility()).length"); n != 0 {
		t.Errorf("%d charts of healthy signals are visible, want none before a click", n)
	}
	if got := eval[string](b, "document.querySelector('#watched').innerText"); !strings.Contains(got, "imagefs.available") || strings.Contains(got, "nodefs") {
		t.Errorf("signals shown beside the healthy ones = %q, want the one that is not observed", got)
	}
	b.shot("calm-light")
	b.looks(1280, 900, true, false)
	b.shot("calm-dark")
	b.looks(360, 740, false, true)
	b.shot("calm-phone")
	b.looks(1280, 900, false, false)
	a.set(func() { a.available, a.short = 92*mib, true })
	b.until(contains("#headline", "memory.available is short for 1 min"))
	b.until(contains("#next", "shop/leaker is evicted next for memory.available<100Mi"))
	const shown = "document.querySelector('#short figure .value strong')"
	b.until(shown + " !== null")
	if size := eval[float64](b, "parseFloat(getComputedStyle("+shown+").fontSize)"); size < 28 {
		t.Errorf("the value of the short signal has %v pixels, want at least 28", size)
	}
	if first := eval[string](b, "document.querySelector('main section').id"); first != "now" {
		t.Errorf("the page begins with the section %q, want now", first)
	}
	a.set(func() { a.available, a.short = 620*mib, false })
	b.until(contains("#headline", "Nothing is short."))
	b.until("document.querySelector('#short').children.length === 0")
}

// The next victim at the top of the page comes with the age of a ranking that is not replaced, and with
// the dry run.
func TestTheNextVictimHasItsCaveats(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#next", "shop/leaker would be evicted first"))
	a.set(func() { a.unranked = errors.New("the pods could not be read in time") })
	b.until(contains("#next", "old: "))
	if got := eval[string](b, "document.querySelector('#next').textContent"); !strings.Contains(got, "could not be read in time") {
		t.Errorf("next victim by an old ranking = %q, want the reason of its age", got)
	}
	a.set(func() { a.unranked, a.dryRun = nil, true })
	b.until(contains("#next", "Dry run: no pod is evicted."))
	b.until("!" + contains("#next", "old: "))
}

// A hidden page gets no ranking, for which the agent reads all pods, and gets a new one when it is shown again.
func TestHiddenPageGetsNoRanking(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#next", "shop/leaker would be evicted first"))
	const hide = "(() => { Object.defineProperty(document, 'hidden', { value: %v, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); return true })()"
	count := func() (looks, states int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.looks, a.states
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s did not happen within %v", what, patience)
			}
		}
	}
	eval[bool](b, fmt.Sprintf(hide, true))
	quiet := func() bool { // three more states without a query for the ranking
		looks, states := count()
		await("a query for the state", func() bool { _, n := count(); return n >= states+3 })
		now, _ := count()
		return now == looks
	}
	await("the end of the queries for the ranking", quiet)
	a.set(func() { a.first = "shop/newest" })
	if got := eval[string](b, "document.querySelector('#next').textContent"); !strings.Contains(got, "shop/leaker") {
		t.Errorf("next victim on a hidden page = %q, want the last one that was shown", got)
	}
	eval[bool](b, fmt.Sprintf(hide, false))
	b.until(contains("#next", "shop/newest would be evicted first"))
}

// Old disk usage behind a ranking is announced.
func TestOldDiskUsageIsAnnounced(t *testing.T) {
	a := newAgent(t)
	a.diskUsage = 42 * time.Minute
	b := open(t, serve(t, a.path))
	b.until(contains("#pod-table", "shop/leaker"))
	if text := eval[string](b, "document.querySelector('#pods-text').textContent"); strings.Contains(text, "disk usage") {
		t.Errorf("sentence above the ranking for memory = %q, want no word about disks", text)
	}
	a.set(func() { a.diskShort = true })
	b.until(contains("#pods-text", "The disk usage of pods is up to 42 min 0 s old and is being measured again."))
}

// The ranking is that of the signal under pressure, unless the user chooses another one. Columns
// without a known value are not shown, and a pod without a name is not only a UID.
func TestTheRankingFollowsThePressure(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	b.until(contains("#pod-table", "shop/leaker"))
	a.set(func() { a.diskShort = true })
	b.until(contains("#pod-table", "shop/logger"))
	b.until(contains("#headline", "nodefs.available is short"))
	table := eval[string](b, "document.querySelector('#pod-table').innerText")
	if strings.Contains(table, "unknown") || !strings.Contains(table, "uses 21Gi of disk") || !strings.Contains(table, "a pod without a name yet (UID 6f1d3c1a)") {
		t.Errorf("ranking for a disk = %s", table)
	}
	if text := eval[string](b, "document.querySelector('#pods-text').textContent"); !strings.Contains(text, "shop/logger is evicted next") || !strings.Contains(text, "The priorities are unknown") {
		t.Errorf("sentence above the ranking for a disk = %s", text)
	}
	b.shot("disk-light")
	const choose = "(() => { const e = document.querySelector('#threshold'); e.value = '%s'; e.dispatchEvent(new Event('change')); return true })()"
	eval[bool](b, fmt.Sprintf(choose, "memory.available<100Mi"))
	b.until(contains("#pod-table", "shop/leaker"))
	eval[bool](b, fmt.Sprintf(choose, ""))
	b.until(contains("#pod-table", "shop/logger"))
}

// Events are sentences with their figures behind a click, and a filter selects them.
func TestEventsAreSentences(t *testing.T) {
	a := newAgent(t)
	b := open(t, serve(t, a.path))
	a.log.Info("condition changed", api.EventCondition.Attr(), "condition", "MemoryPressure", "status", true, "reason", "KubeletHasInsufficientMemory")
	a.log.Warn("threshold met without eviction", api.EventCondition.Attr(), "signal", "memory.available", "observed", 92*mib, "reason", "no eligible pod")
	a.log.Info("garbage collected", api.EventGarbage.Attr(), "what", "images", "removed", 3, "freed", 700*mib)
	a.evict("20260720T120000.000000Z-abcd", "leaker")
	b.until(contains("#event-list", "shop/leaker was evicted"))
	sentences := func() string {
		return eval[string](b, "[...document.querySelectorAll('#event-list summary')].map((e) => e.lastChild.textContent).join('\\n')")
	}
	if got, want := sentences(), strings.Join([]string{"shop/leaker was evicted for memory.available with 92Mi left.",
		"Garbage collection removed 3 images and freed 700Mi.", "No pod was evicted for memory.available with 92Mi left: no eligible pod.",
		"MemoryPressure is now true: KubeletHasInsufficientMemory."}, "\n"); got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	if eval[bool](b, "[...document.querySelectorAll('#event-list dl')].some((e) => e.checkVisibility())") {
		t.Error("figures of an event are visible before a click")
	}
	b.do(chromedp.Focus(chromedp.CSS("#event-list summary")), chromedp.KeyEvent(kb.Enter))
	b.until("document.querySelector('#event-list dl').innerText.includes('92Mi')")
	b.shot("events-light")
	set := func(id, value string) {
		eval[bool](b, fmt.Sprintf("(() => { const e = document.querySelector('%s'); if (e.type === 'checkbox') e.checked = %q !== ''; else e.value = %[2]q; e.dispatchEvent(new Event('input', { bubbles: true })); return true })()", id, value))
	}
	for _, c := range []struct{ id, value, want string }{
		{"#event-kind", "garbage", "Garbage collection removed 3 images and freed 700Mi."},
		{"#event-words", "LEAKER memory", "shop/leaker was evicted for memory.available with 92Mi left."},
		{"#event-warnings", "on", "No pod was evicted for memory.available with 92Mi left: no eligible pod."},
	} {
		set(c.id, c.value)
		if got := sentences(); got != c.want {
			t.Errorf("events with %s = %q are %q, want %q", c.id, c.value, got, c.want)
		}
		set(c.id, "")
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
