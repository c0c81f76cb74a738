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

// findLimit is for the command line and the files of a kubelet: a process may hold what is read of
// it, and a file system hang.
const findLimit = 10 * time.Second

// Places say where Find looks.
type Places struct {
	Path      string // the file's; empty: DefaultPath
	Dir       string // of drop-ins over a kubelet's file, as a kubelet's --config-dir; empty: none
	ProcMount string // empty: /proc
	// StateDir is where is kept that a kubelet was seen on this node; empty: that is not known. One
	// that was is waited for where it is not there now, for it may be starting anew: at most
	// kubeletWait, or Wait.
	StateDir string
	Wait     time.Duration // 0: kubeletWait
	// Record is the flag that sets record; empty: it is not given.
	Record string
	// Waiting is called once before that, with what is known of the kubelet: nothing else is done
	// meanwhile. nil: nobody is told.
	Waiting func(why string)

	Sockets []Socket // of runtimes that nobody names; nil: the usual ones
}

// FromDefaults is From of a configuration that nobody has written.
const FromDefaults = "defaults"

// kubeletWait is for how long a kubelet that was seen before is waited for: one that restarts, or
// that comes up after a boot beside this program, takes some seconds. The node is not guarded
// meanwhile. kubeletPoll is how often it is looked for.
const (
	kubeletWait = 15 * time.Second
	kubeletPoll = 500 * time.Millisecond
)

// Find loads the configuration of the agent on this node, layer by layer: the defaults, what the
// node's kubelet goes by, a file of our own (the one that is named, or else DefaultPath), the
// environment, flags. A kubelet's file that is named takes the place of the first three. From says
// what was there. A kubelet whose configuration cannot be taken is a warning, and is left out.
func Find(ctx context.Context, o Places) (*Loaded, error) {
	l, err := findFiles(ctx, o)
	if err == nil {
		err = l.override(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if o.Path == "" && !slices.Contains(l.Files, DefaultPath) { // it may come
		l.Files = append(l.Files, DefaultPath)
	}
	return l, nil
}

// ErrNoKubelet: the kubelet whose configuration holds is not there. It may be starting anew.
var ErrNoKubelet = errors.New("the node's kubelet is not there: what it went by holds still")

// findFiles is what files, and a kubelet's flags, come to.
func findFiles(ctx context.Context, o Places) (*Loaded, error) {
	p, err := readParts(ctx, o.Path)
	if err == nil {
		err = p.trusted()
	}
	switch {
	case err != nil:
		return nil, err
	case o.Dir != "" && p == nil:
		return nil, errors.New("--config-dir: name the kubelet's file, over which they lie, with --config")
	case o.Dir != "":
		return p.over(o.Dir)
	case p != nil && isKubelets(p.root) == nil:
		return p.named()
	case p != nil:
		return p.overKubelets(ctx, o)
	}
	l, err := findKubelets(ctx, o.ProcMount, nil)
	if err == nil && l == nil {
		l, err = awaitKubelets(ctx, o)
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
			fmt.Sprintf("the defaults hold, the node's kubelet has others perhaps: %v: "+
				"name its configuration with --config, or write %s", err, DefaultPath))
	}
	return l, nil
}

// awaitKubelets is the configuration of a kubelet that was seen on this node before, and is not
// there; nil: none was. It is an error if it does not come.
func awaitKubelets(ctx context.Context, o Places) (l *Loaded, err error) {
	if o.StateDir == "" {
		return nil, nil
	}
	// What is wrong with what was kept is said where that is taken up.
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
			none := fmt.Errorf("it is not there, and did not come within %v (%s)", wait, why)
			return nil, cmp.Or(err, none)
		case <-tick.C:
		}
		if l, err = findKubelets(ctx, o.ProcMount, nil); l != nil {
			return l, err
		}
	}
}

// Times between two looks for a kubelet that comes later: laterFirst, and up to laterMost where
// there is one whose configuration cannot be taken: each look may be held by the kernel.
const (
	laterFirst = time.Minute
	laterMost  = time.Hour
)

// Later waits for a kubelet on a node where the defaults hold, and returns its configuration; nil:
// ctx has ended before.
func Later(ctx context.Context, procMount string) *Loaded {
	for wait := laterFirst; ; {
		if !retry.Sleep(ctx, wait) {
			return nil
		}
		l, err := findKubelets(ctx, procMount, nil)
		if l != nil && err == nil {
			return l
		}
		if wait = retry.Backoff(wait, laterFirst, laterMost); err == nil {
			wait = laterFirst
		}
	}
}

// overKubelets is a file of our own over what the node's kubelet goes by; alone where there is
// none, or where that cannot be taken. None is waited for: the node is guarded by the file
// meanwhile.
func (p *parts) overKubelets(ctx context.Context, o Places) (*Loaded, error) {
	alone, err := p.named() // it has to be right by itself
	if err != nil {
		return nil, err
	}
	l, err := findKubelets(ctx, o.ProcMount, p)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		alone.Warnings = append(alone.Warnings, fmt.Sprintf(
			"what %s does not set has its default, the node's kubelet has another perhaps: %v", alone.Path,
			err))
	case l != nil:
		l.Path, l.From = alone.Path, alone.Path+", over "+l.From
		return l, nil
	}
	return alone, nil
}

// findKubelets is the configuration of the node's kubelet, with a file of our own over it (nil:
// none); nil: there is no kubelet.
func findKubelets(ctx context.Context, procMount string, own *parts) (*Loaded, error) {
	type answer struct {
		l   *Loaded
		err error
	}
	answers := make(chan answer, 1)
	go func() { // left behind if the kernel holds it
		k, ok, err := kubeletdetect.FindProcess(procMount)
		var l *Loaded
		if ok && err == nil {
			if l, err = kubelets(k, own); err != nil {
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
		return nil, fmt.Errorf("its command line and files are not read within %v", findLimit)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// kubelets is what a kubelet goes by: its file, drop-ins over that, flags over both. What it does
// not have, and this program does, has this program's defaults; so have the thresholds of a kubelet
// without a file, which has none of its own.
func kubelets(k kubeletdetect.Process, own *parts) (*Loaded, error) {
	args := k.Args
	if k.Name == "hyperkube" && len(args) > 0 && args[0] == "kubelet" {
		args = args[1:]
	} else if k.Name != "kubelet" {
		return nil, errors.New("a kubelet inside of another program, whose configuration is not looked for")
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
	var odd error
	p.finish = func(c *Config) {
		c.MemoryAvailable, c.Breaker = ours.MemoryAvailable, ours.Breaker
		odd = line.finish(c)
	}
	for i, file := range p.files {
		p.files[i] = filepath.Join(k.Root, file)
	}
	if own != nil {
		p.own, p.names, p.files = own.root, append(p.names, own.names[0]), append(p.files, own.files...)
	}
	l, err := p.load()
	if err != nil {
		return nil, p.blame(err)
	}
	if odd != nil {
		return nil, odd
	}
	for field, flag := range line.told {
		if o := l.origin(strings.Split(field, ": ")...); o.Source == SourceDefault {
			l.tell(field, Origin{SourceKubeletFlag, flag})
		}
	}
	l.Path, l.Kubelet = p.names[0], true
	l.From = fmt.Sprintf("the kubelet, process %d: %s", k.PID, strings.Join(from, ", "))
	return l, nil
}

// parts reads the files that a kubelet's flags name. from says which, and which flags set
// something.
func (c *commandLine) parts(host *read.HostRoot) (p *parts, from []string, err error) {
	p = &parts{flags: c.fields, flagged: c, names: []string{"without a file"}}
	if file := c.other["config"]; file != "" {
		p.names[0], p.dir, p.files = file, filepath.Dir(file), []string{file}
		content, err := readHost(host, file)
		if err != nil {
			return nil, nil, err
		}
		if p.root, err = document(content); err == nil {
			err = isKubelets(p.root)
		}
		if err != nil {
			return nil, nil, p.blame(err)
		}
		from = append(from, file)
	} else if p.root, err = document([]byte("apiVersion: " + APIVersionKubelet + "\nkind: " +
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
	number(c.fields, len(p.names)-1, map[*yaml.Node]bool{})
	if from = append(from, c.named...); len(from) == 0 {
		from = []string{"no file and no flag"}
	}
	return p, from, nil
}

// over loads a file with drop-ins over it.
func (p *parts) over(dir string) (*Loaded, error) {
	if isKubelets(p.root) != nil {
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
	return p.named()
}
