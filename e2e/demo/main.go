// Command demo shows the agent at work: it boots a node, runs the agent and pods of all three QoS
// classes, lets one of them leak, and prints the events as they happen. `make demo` runs it.
//
//	main.go     the node, its pods, and the output
//	page.go     the page of jettison ui, while the node runs
//	picture.go  the run as one picture
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

const (
	mib       = 1 << 20
	threshold = 100 * mib

	sampleInterval = 250 * time.Millisecond // between two samples of the node's memory
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	d := &demo{out: os.Stdout, began: time.Now(), live: isTerminal(os.Stdout)}
	err := d.run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted && !d.over:
		d.print("interrupted: the node is switched off, nothing is left behind")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	d.print("the node is switched off, nothing is left behind")
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type demo struct {
	out   io.Writer
	began time.Time
	live  bool // the bar is redrawn in place
	bar   bool // the last output is a bar without a newline
	over  bool // the demo is over; the node may stay

	address string     // of the page
	seen    []pictured // of the node's memory, by the guest's clock
}

func (d *demo) print(format string, args ...any) {
	if d.bar {
		fmt.Fprintln(d.out)
		d.bar = false
	}
	fmt.Fprintf(d.out, "%5.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// progress prints the progress of slow steps.
func (d *demo) progress(format string, args ...any) { d.print("  "+format, args...) }

func (d *demo) run(ctx context.Context) error {
	d.print("booting a throw-away node: a virtual machine with containerd (the first run builds its parts, which takes a few minutes)")
	go func() { _, _ = vm.AgentPod(ctx, vm.OverlayContainerd) }() // renders it for StartAgent, which reports its error
	n, err := vm.Boot(ctx, vm.Options{Kernel: os.Getenv("JETTISON_KERNEL"), Say: d.progress})
	if err != nil {
		return err
	}
	defer n.Close()
	d.print("starting the agent in a pod, like its DaemonSet")
	agent, err := n.StartAgent(ctx, "")
	if err != nil {
		return err
	}
	d.progress("the agent's pod runs, the agent examines the node")
	if _, err := agent.WaitLog(ctx, time.Minute, "started", 1); err != nil {
		return fmt.Errorf("%w\n%s", err, n.Tail(agent.LogPath("agent"), 20))
	}
	closePage, err := d.page(ctx, n)
	if err != nil {
		return err
	}
	defer closePage()
	pods, err := d.startPods(ctx, n)
	if err != nil {
		return err
	}
	line, err := d.watch(ctx, n, agent)
	if err != nil {
		return err
	}
	after := observe(ctx, n)
	d.printLine(line)
	if err := d.survivors(ctx, n, pods); err != nil {
		return err
	}
	if err := d.draws(n, line, <-after); err != nil {
		return err
	}
	d.over = true
	if os.Getenv("JETTISON_KEEP") != "" {
		d.print("the node and its page stay until Ctrl-C: %s", d.address)
		<-ctx.Done()
	}
	return nil
}

// startPods runs the neighbours, fills the node up to a little above the threshold, and starts the
// leaker.
func (d *demo) startPods(ctx context.Context, n *vm.Node) (pods []*vm.Pod, err error) {
	start := func(object *v1.Pod, what string) {
		if err != nil {
			return
		}
		var p *vm.Pod
		if p, err = n.Run(ctx, object); err == nil {
			d.print("pod %-12s %-10s  %s", object.Name, p.QOS, what)
			pods = append(pods, p)
			_, err = d.memory(ctx, n)
		}
	}
	start(vm.NewPod("database", "320Mi", "320Mi", "alloc -size 256Mi"), "requests 320Mi, uses 256Mi")
	start(vm.NewPod("web", "128Mi", "", "alloc -size 96Mi"), "requests 128Mi, uses 96Mi")
	start(vm.NewPod("cache", "32Mi", "", "alloc -size 64Mi"), "requests 32Mi, uses 64Mi: over its request")
	start(vm.NewPod("batch", "", "", "alloc -size 24Mi"), "requests nothing, uses 24Mi")
	start(vm.NewPod("leaker", "", "", "alloc -rate 30Mi -size 8Gi"), "requests nothing, leaks 30Mi/s")
	return pods, err
}

// watch draws the available memory until the agent has logged its eviction.
func (d *demo) watch(ctx context.Context, n *vm.Node, agent *vm.Agent) (line vm.LogLine, err error) {
	d.print("memory available, the threshold at 100Mi:")
	crossed := false
	deadline := time.Now().Add(3 * time.Minute)
	for tick := time.NewTicker(sampleInterval); ; {
		select {
		case <-ctx.Done():
			return line, ctx.Err()
		case <-tick.C:
		}
		m, err := d.memory(ctx, n)
		if err != nil {
			return line, err
		}
		d.draw(m)
		if m.Available() < threshold && !crossed {
			crossed = true
			d.print("below the threshold")
		}
		lines, err := agent.Log(ctx)
		if err != nil {
			return line, err
		}
		for _, l := range lines {
			if l.Msg == "evicted" {
				return l, nil
			}
		}
		if time.Now().After(deadline) {
			return line, errors.New("wait for an eviction: the agent evicted no pod within three minutes")
		}
	}
}

// memory reads the node's memory and keeps it for the picture.
func (d *demo) memory(ctx context.Context, n *vm.Node) (guestapi.Memory, error) {
	m, err := n.Memory(ctx)
	if err == nil {
		d.seen = append(d.seen, sampleOf(m))
	}
	return m, err
}

func sampleOf(m guestapi.Memory) pictured {
	return pictured{time.Duration(m.MonotonicNS), m.Available()}
}

// draw writes one bar, over the previous one on a terminal.
func (d *demo) draw(m guestapi.Memory) {
	const width = 50
	cells := func(bytes int64) int { return int(min(max(bytes*width/m.Total, 0), width)) }
	bar := []rune(strings.Repeat("█", cells(m.Available())) + strings.Repeat("·", width-cells(m.Available())))
	bar[cells(threshold)] = '|'
	end := "\n"
	if d.live {
		end, d.bar = "\r", true
	}
	fmt.Fprintf(d.out, "%5.1f s  %s %5dMi %s", time.Since(d.began).Seconds(), string(bar), m.Available()/mib, end)
}

// printLine prints the agent's log line as text.
func (d *demo) printLine(line vm.LogLine) {
	f := line.Fields
	number := func(key string) float64 { v, _ := f[key].(float64); return v }
	d.print("evicted %v: %v", f["victim"], f["reason"])
	d.print("  signal %v: %.2fMi observed, threshold %.0fMi", f["signal"], number("observed")/mib, number("threshold")/mib)
	d.print("  crossed to killed      %8.1f ms", float64(line.Duration("crossedToKill"))/1e6)
	d.print("  killed to memory back  %8.1f ms, %.0fMi available", float64(line.Duration("killToMemoryBack"))/1e6, number("available")/mib)
	d.print("the ranking, first victim first:")
	fmt.Fprintf(d.out, "           %-28s %-11s %9s %9s  %s\n", "POD", "QOS", "USES", "REQUESTS", "BECAUSE")
	rows, _ := f["ranking"].([]any)
	for i, r := range rows {
		row, _ := r.(map[string]any)
		because := "it comes first"
		if p, ok := row["protected"].(string); ok {
			because = "never a victim: " + p
		} else if by, ok := row["decidedBy"].(string); ok && i > 0 {
			because = "after the one above by: " + by
		}
		fmt.Fprintf(d.out, "           %-28v %-11v %9s %9s  %s\n", row["pod"], row["qos"], mebibytes(row["usage"]), mebibytes(row["request"]), because)
	}
}

func mebibytes(v any) string {
	bytes, ok := v.(float64)
	if !ok || bytes < 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.0fMi", bytes/mib)
}

// survivors checks on the node that every pod except the leaker lives, and that the kernel killed
// none.
func (d *demo) survivors(ctx context.Context, n *vm.Node, pods []*vm.Pod) error {
	leaker := pods[len(pods)-1]
	leaker.Expected = vm.Dies
	if err := leaker.WaitDead(ctx); err != nil {
		return err
	}
	d.print("leaker is gone, according to the kernel (cgroup.events) and the runtime (sandbox not ready)")
	for _, p := range pods[:len(pods)-1] {
		if err := p.Check(ctx); err != nil {
			return err
		}
		d.print("%-12s still running", p.Object.Name)
	}
	if faults := n.Audit(ctx, false); len(faults) > 0 {
		return errors.Join(faults...)
	}
	m, err := n.Memory(ctx)
	if err != nil {
		return err
	}
	d.print("no OOM kill by the kernel; %dMi available.", m.Available()/mib)
	return nil
}

// pictureFile is the path of the picture of the run.
const pictureFile = "bin/demo.svg"

// observed has samples of the node's memory after the eviction.
type observed struct {
	seen []pictured
	err  error
}

// observe samples the node's memory for 4 s in the background. The picture shows that it stays
// available.
func observe(ctx context.Context, n *vm.Node) <-chan observed {
	done := make(chan observed, 1)
	go func() {
		var o observed
		tick := time.NewTicker(sampleInterval)
		defer tick.Stop()
		for len(o.seen) < 16 && o.err == nil {
			select {
			case <-ctx.Done():
				o.err = ctx.Err()
			case <-tick.C:
				var m guestapi.Memory
				m, o.err = n.Memory(ctx)
				o.seen = append(o.seen, sampleOf(m))
			}
		}
		done <- o
	}()
	return done
}

// draws writes the picture of the run.
func (d *demo) draws(n *vm.Node, line vm.LogLine, after observed) error {
	if after.err != nil {
		return after.err
	}
	d.seen = append(d.seen, after.seen...)
	ms := func(field string) float64 { return float64(line.Duration(field)) / 1e6 }
	p := &picture{
		Title: "A pod leaks 30Mi/s on a node of 1Gi: memory available", Samples: d.seen, Killed: line.Duration("killedAtMonotonic"),
		Victim: fmt.Sprint(line.Fields["victim"]),
		Told: []string{
			fmt.Sprintf("crossed to killed %.1f ms, killed to memory back %.1f ms; no other pod died, no OOM kill", ms("crossedToKill"), ms("killToMemoryBack")),
			"a virtual machine under software emulation (QEMU without KVM), kernel " + n.Kernel,
		},
	}
	if err := os.MkdirAll(filepath.Dir(pictureFile), 0o755); err != nil {
		return err
	}
	f, err := os.Create(pictureFile)
	if err != nil {
		return fmt.Errorf("draw the run: %w", err)
	}
	if err := errors.Join(p.svg(f), f.Close()); err != nil {
		return err
	}
	d.print("the run as a picture: %s", pictureFile)
	return nil
}
