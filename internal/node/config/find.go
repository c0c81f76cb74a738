package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/retry"
	"jettison/internal/node/kubeletdetect"
	"jettison/stats/read"
)

// findLimit bounds the reading of a kubelet's command line and files, which a process or a file
// system may block.
const findLimit = 10 * time.Second

// Places are the inputs of Find.
type Places struct {
	Path      string // of the file; empty: DefaultPath
	Dir       string // drop-ins over a kubelet's file, as its --config-dir; empty: none
	ProcMount string // empty: /proc
	// StateDir contains the note that this node had a kubelet; empty: unknown. If it had one that is
	// not running now, Find waits for it, because it may be restarting: at most Wait.
	StateDir string
	Wait     time.Duration // 0: kubeletWait
	// Record is the value of the flag --record; empty: not set.
	Record string
	// Waiting is called once before Find waits, with the reason; nil: no call. Find does nothing else
	// meanwhile.
	Waiting func(why string)

	Sockets []Socket // where to search for the runtime; nil: the usual ones
}

// FromDefaults is Loaded.From of a configuration without a file or kubelet.
const FromDefaults = "defaults"

// kubeletWait bounds the wait for a kubelet that ran before: a restart, or a boot in parallel with
// the agent, takes some seconds. The node is not guarded meanwhile. kubeletPoll is the pause between
// two searches.
const (
	kubeletWait = 15 * time.Second
	kubeletPoll = 500 * time.Millisecond
)

// Find loads the configuration of the agent on this node, in layers: the defaults, the kubelet's
// configuration, the agent's file (Path or DefaultPath), the environment, flags. A kubelet's file
// in Path replaces the first three. Loaded.From names the layers. If a kubelet's configuration
// cannot be loaded, Find ignores it and adds a warning.
func Find(ctx context.Context, o Places) (*Loaded, error) {
	l, err := loadFiles(ctx, o)
	if err == nil {
		err = l.override(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if o.Path == "" && !slices.Contains(l.Files, DefaultPath) { // it may be created later
		l.Files = append(l.Files, DefaultPath)
	}
	return l, nil
}

// ErrNoKubelet: the kubelet that provided the current configuration does not run. It may be
// restarting.
var ErrNoKubelet = errors.New("the node's kubelet is not running: its previous configuration stays in effect")

// loadFiles loads the layers of files and of a kubelet's flags.
func loadFiles(ctx context.Context, o Places) (*Loaded, error) {
	p, err := readParts(ctx, o.Path)
	if err == nil {
		err = p.checkTrusted()
	}
	switch {
	case err != nil:
		return nil, err
	case o.Dir != "" && p == nil:
		return nil, errors.New("--config-dir: set --config to the kubelet's file that the drop-ins extend")
	case o.Dir != "":
		return p.withDropins(o.Dir)
	case p != nil && checkKubeletKind(p.root) == nil:
		return p.loadNamed()
	case p != nil:
		return p.overKubelet(ctx, o)
	}
	l, err := findKubelet(ctx, o.ProcMount, nil)
	if err == nil && l == nil {
		l, err = awaitKubelet(ctx, o)
	}
	if err == nil && l != nil {
		return l, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l = &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}
	if err != nil {
		l.Warnings = append(l.Warnings,
			fmt.Sprintf("using the defaults, cannot load the configuration of the node's kubelet: %v: "+
				"name its file with --config, or write %s", err, DefaultPath))
	}
	return l, nil
}

// awaitKubelet waits for a kubelet that ran on this node before and does not run now, and returns
// its configuration. It returns nil if the node had no kubelet, and an error after the wait.
func awaitKubelet(ctx context.Context, o Places) (l *Loaded, err error) {
	if o.StateDir == "" {
		return nil, nil
	}
	// The agent reports errors of the note when it opens the note for itself.
	p, _ := kubeletdetect.OpenPresence(kubeletdetect.PresenceOptions{ProcMount: o.ProcMount,
		StateDir: o.StateDir, ReadOnly: true})
	found, why := p.Look()
	if !found {
		return nil, nil
	}
	if o.Waiting != nil {
		o.Waiting(why)
	}
	wait := cmp.Or(o.Wait, kubeletWait)
	over := time.NewTimer(wait)
	defer over.Stop()
	tick := time.NewTicker(min(kubeletPoll, wait))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-over.C:
			none := fmt.Errorf("no kubelet process within %v (%s)", wait, why)
			return nil, cmp.Or(err, none)
		case <-tick.C:
		}
		if l, err = findKubelet(ctx, o.ProcMount, nil); l != nil {
			return l, err
		}
	}
}

// Pauses between two searches for a kubelet that starts later: laterMinPause, and up to laterMaxPause
// after failures to load its configuration, because each search may block in the kernel.
const (
	laterMinPause = time.Minute
	laterMaxPause = time.Hour
)

// AwaitKubelet waits for a kubelet on a node without other configuration, and returns the kubelet's. It
// returns nil if ctx ends first.
func AwaitKubelet(ctx context.Context, procMount string) *Loaded {
	for wait := laterMinPause; ; {
		if !retry.Sleep(ctx, wait) {
			return nil
		}
		l, err := findKubelet(ctx, procMount, nil)
		if l != nil && err == nil {
			return l
		}
		if wait = retry.Backoff(wait, laterMinPause, laterMaxPause); err == nil {
			wait = laterMinPause
		}
	}
}

// overKubelet loads an agent's file over the configuration of the node's kubelet, or alone if
// there is no kubelet or its configuration cannot be loaded. It does not wait for a kubelet: the
// file guards the node meanwhile.
func (p *parts) overKubelet(ctx context.Context, o Places) (*Loaded, error) {
	alone, err := p.loadNamed() // it must be valid by itself
	if err != nil {
		return nil, err
	}
	l, err := findKubelet(ctx, o.ProcMount, p)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		alone.Warnings = append(alone.Warnings, fmt.Sprintf(
			"using defaults for fields that %s does not set, cannot load the configuration of the node's "+
				"kubelet: %v", alone.Path, err))
	case l != nil:
		l.Path, l.From = alone.Path, alone.Path+", over "+l.From
		return l, nil
	}
	return alone, nil
}

// findKubelet loads the configuration of the node's kubelet, under the agent's file own (nil:
// none). It returns nil if the node has no kubelet.
func findKubelet(ctx context.Context, procMount string, own *parts) (*Loaded, error) {
	type answer struct {
		l   *Loaded
		err error
	}
	answers := make(chan answer, 1)
	go func() { // abandoned if it blocks in the kernel
		k, ok, err := kubeletdetect.FindProcess(procMount)
		var l *Loaded
		if ok && err == nil {
			if l, err = loadKubelet(k, own); err != nil {
				err = fmt.Errorf("%s, process %d: %w", k.Name, k.PID, err)
			}
		}
		answers <- answer{l, err}
	}()
	timer := time.NewTimer(findLimit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.l, a.err
	case <-timer.C:
		return nil, fmt.Errorf("read its command line and files: timeout after %v", findLimit)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// loadKubelet loads a kubelet's configuration: its file, the drop-ins, then the flags. Fields that the
// kubelet lacks have the agent's defaults; so do the thresholds of a kubelet without a file, which
// has none.
func loadKubelet(k kubeletdetect.Process, own *parts) (*Loaded, error) {
	args := k.Args
	if k.Name == "hyperkube" && len(args) > 0 && args[0] == "kubelet" {
		args = args[1:]
	} else if k.Name != "kubelet" {
		return nil, errors.New("this kubelet is part of another program, so its configuration cannot be read")
	}
	line, err := parseFlags(args, k.Dir)
	if err != nil {
		return nil, err
	}
	host, err := read.OpenHostRoot(k.Root)
	if err != nil {
		return nil, err
	}
	defer host.Close()
	p, from, err := line.parts(host)
	if err != nil {
		return nil, err
	}
	ours := defaults(KindAgent)
	var flagErr error
	p.finish = func(c *Config) {
		c.MemoryAvailable, c.Breaker = ours.MemoryAvailable, ours.Breaker
		flagErr = line.finish(c)
	}
	for i, file := range p.files {
		p.files[i] = filepath.Join(k.Root, file)
	}
	if own != nil {
		p.own, p.names, p.files = own.root, append(p.names, own.names[0]), append(p.files, own.files...)
	}
	l, err := p.load()
	if err != nil {
		return nil, p.addPlace(err)
	}
	if flagErr != nil {
		return nil, flagErr
	}
	for field, flag := range line.otherFlagOf {
		if o := l.origin(strings.Split(field, ": ")...); o.Source == SourceDefault {
			l.setOrigin(field, Origin{SourceKubeletFlag, flag})
		}
	}
	l.Path, l.Kubelet = p.names[0], true
	l.From = fmt.Sprintf("the kubelet, process %d: %s", k.PID, strings.Join(from, ", "))
	return l, nil
}

// parts reads the files that a kubelet's flags name. from lists these files, and the flags that set
// fields.
func (c *commandLine) parts(host *read.HostRoot) (p *parts, from []string, err error) {
	p = &parts{flags: c.fields, cmdline: c, names: []string{"without a file"}}
	if file := c.other["config"]; file != "" {
		p.names[0], p.dir, p.files = file, filepath.Dir(file), []string{file}
		content, err := readHost(host, file)
		if err != nil {
			return nil, nil, err
		}
		if p.root, err = parseDocument(content); err == nil {
			err = checkKubeletKind(p.root)
		}
		if err != nil {
			return nil, nil, p.addPlace(err)
		}
		from = append(from, file)
	} else if p.root, err = parseDocument([]byte("apiVersion: " + APIVersionKubelet + "\nkind: " +
		KindKubelet + "\n")); err != nil {
		return nil, nil, err
	}
	if dir := c.other["config-dir"]; dir != "" {
		if p.dropins, err = readDropins(host, dir); err != nil {
			return nil, nil, err
		}
		p.files = append(p.files, dir)
		for _, d := range p.dropins {
			p.names, p.files = append(p.names, d.name), append(p.files, d.name)
			from = append(from, d.name)
		}
	}
	p.names = append(p.names, "flags")
	numberLines(c.fields, len(p.names)-1, map[*yaml.Node]bool{})
	if from = append(from, c.used...); len(from) == 0 {
		from = []string{"no file and no flag"}
	}
	return p, from, nil
}

// withDropins loads a kubelet's file with the drop-ins of dir.
func (p *parts) withDropins(dir string) (*Loaded, error) {
	if checkKubeletKind(p.root) != nil {
		return nil, fmt.Errorf("--config-dir: config %s: kind %s has no drop-ins", p.names[0], KindAgent)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	host, err := read.OpenHostRoot("/")
	if err != nil {
		return nil, err
	}
	defer host.Close()
	if p.dropins, err = readDropins(host, dir); err != nil {
		return nil, fmt.Errorf("config: --config-dir: %w", err)
	}
	p.files = append(p.files, dir)
	for _, d := range p.dropins {
		p.names, p.files = append(p.names, d.name), append(p.files, d.name)
	}
	return p.loadNamed()
}
