package ui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"jettison/internal/cli/ui"
)

// patience is the timeout for a change of the page: many times what it needs.
const patience = 30 * time.Second

// browser is a tab that shows the page.
type browser struct {
	t       *testing.T
	ctx     context.Context
	address string

	mu     sync.Mutex
	errors []string // console errors of the page and the browser
}

// serve runs jettison ui over a socket until the test ends, and returns the page's address.
func serve(t *testing.T, socket string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- ui.Run(ctx, ui.Options{Socket: socket, Listen: "127.0.0.1:0", Version: "test", Node: "worker-1"}, in, io.Discard)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// open opens the page. Errors on the console fail the test at its end.
func open(t *testing.T, address string) *browser {
	t.Helper()
	allocator, endAll := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.WindowSize(1280, 900), chromedp.Flag("force-prefers-reduced-motion", true))...)
	ctx, end := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx, address: address}
	messages := chromedp.Console(ctx) // starts the browser
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for m, err := range messages {
			if err != nil {
				return
			}
			b.collect(m)
		}
	}()
	t.Cleanup(func() {
		end()
		endAll()
		<-heard
		for _, e := range b.errors {
			t.Errorf("error on the browser's console: %s", e)
		}
	})
	b.do(chromedp.Navigate(address))
	return b
}

// collect collects console errors: those of the page, exceptions, and resources that the browser
// blocks (the policy) or cannot load.
func (b *browser) collect(m chromedp.ConsoleMessage) {
	switch m.Type {
	case chromedp.ConsoleError, chromedp.ConsoleException, chromedp.ConsoleWarning:
		b.mu.Lock()
		b.errors = append(b.errors, m.Text+" "+m.URL)
		b.mu.Unlock()
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// value runs an action and returns its result.
func value[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// eval returns the value of an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	return value(b, chromedp.Evaluate[T](expression))
}

// until waits until an expression is true in the page.
func (b *browser) until(expression string) {
	b.t.Helper()
	b.within(patience, expression)
}

// within works as until, with another timeout.
func (b *browser) within(limit time.Duration, expression string) {
	b.t.Helper()
	poll := chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(limit))
	ctx, cancel := context.WithTimeout(b.ctx, limit+patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, poll); err != nil {
		b.t.Fatalf("page condition %s is not true: %v\n%s", expression, err, eval[string](b, "document.body.innerText"))
	}
}

// contains returns an expression that is true if an element's text contains this one.
func contains(selector, text string) string {
	quoted := strings.NewReplacer(`\`, `\\`, "`", "\\`", "$", `\$`).Replace(text)
	return "document.querySelector('" + selector + "').textContent.includes(`" + quoted + "`)"
}

// looks sets the screen: width and height in pixels, and the user's preference for dark colours.
func (b *browser) looks(width, height int64, dark, phone bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	options := []chromedp.EmulateViewportOption{}
	if phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	b.do(chromedp.EmulateViewport(width, height, options...), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
		return err
	}))
	b.until(fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", width, scheme))
}

// shot writes a picture of the whole page, if JETTISON_SHOTS names a directory.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("JETTISON_SHOTS")
	if dir == "" {
		return
	}
	picture := value(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
