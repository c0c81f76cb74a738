package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/podjson"
	"jettison/stats"
	"jettison/stats/read"
)

// The scripts in testdata drive a gate; go test ./internal/agent/admission -rewrite writes the
// answers again, to be reviewed as a diff.
//
//	node [dry]         a new agent on a node: a resource and its allocatable amount, name N, self CGROUP, apparmor on|off, label K=V,
//	                   taint K=V:EFFECT
//	runtime            the runtime's pods from now on, one a line (see parseSandbox), each with a running container
//	objects [member]   objects from root, or from a member of socketGroup, as JSON, one a line
//	manifests          static pods, as JSON, one a line
//	conditions [A...]  of the node, from now on
//	kubelet on|off     whether a kubelet runs
//	kills ending=A undying=B
//	refuse             the runtime asks for each pod, one a line: its answer
//	left               sandboxes end, one UID a line
//	ask                a client asks for each pod, as JSON, one a line
//	wait DURATION      time without a turn of the loop
//	state              the resources that pods hold
//	counts, log        counts of answers, and the log
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("testdata has no scripts: ", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &script{t: t}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				text, err := s.run(d)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return text
			})
		})
	}
}

type script struct {
	t          testing.TB
	a          *Admission
	part       *Part
	store      *podstore.Store
	now        time.Time
	self       string
	conditions []eviction.Condition
	kubelet    bool
	kills      map[string]string
	log        bytes.Buffer
}

func (s *script) publish() { s.part.Publish(s.now, s.conditions, s.kubelet) }

func (s *script) run(d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "node":
		return "ok", s.node(d)
	case "refuse", "left", "ask":
		return s.asks(d)
	case "counts":
		return s.counts(), nil
	case "log":
		for len(s.part.Refusals()) > 0 {
			s.part.OnRefusal(<-s.part.Refusals())
		}
		text := s.log.String()
		s.log.Reset()
		return text, nil
	case "state":
		return s.held(), nil
	case "wait":
		long, err := time.ParseDuration(d.CmdArgs[0].Key)
		s.now = s.now.Add(long)
		return "ok", err
	}
	if err := s.change(d); err != nil {
		return "", err
	}
	s.publish()
	return "ok", nil
}

var policy = eviction.Policy{AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"}}

func (s *script) node(d *datadriven.TestData) (err error) {
	*s = script{t: s.t, store: podstore.New(), kills: map[string]string{}}
	list, n := v1.ResourceList{}, Node{Arch: "amd64", Configured: map[string]string{}}
	if n.Sysctls, err = admit.NewSysctls(nil); err != nil {
		return err
	}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		switch f[0] {
		case "name":
			n.Name = f[1]
		case "self":
			s.self = f[1]
		case "apparmor":
			n.AppArmor = stats.Some(f[1] == "on")
		case "label":
			key, value, _ := strings.Cut(f[1], "=")
			n.Configured[key] = value
		case "taint":
			kv, effect, _ := strings.Cut(f[1], ":")
			key, value, _ := strings.Cut(kv, "=")
			n.Taints = append(n.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
		default:
			list[v1.ResourceName(f[0])] = resource.MustParse(f[1])
		}
	}
	s.a = New(policy)
	s.now = s.a.began
	strip := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	s.part = NewPart(s.a, Options{
		Node: n, DryRun: d.HasArg("dry"), Self: func() string { return s.self },
		Capacity: func() v1.ResourceList { return list }, Allocatable: func(c v1.ResourceList) v1.ResourceList { return c },
		Evictions: func(time.Time) (ending, undying map[string]bool) {
			return map[string]bool{s.kills["ending"]: true}, map[string]bool{s.kills["undying"]: true}
		},
		HeldOff: func(time.Time, *v1.Pod) (string, bool) { return "", false },
		Name:    func(p stats.PodReference) string { return p.Namespace + "/" + p.Name },
		Log:     logthrottle.New(slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{ReplaceAttr: strip}))),
	})
	s.publish()
	return nil
}

func (s *script) change(d *datadriven.TestData) error {
	switch d.Cmd {
	case "runtime":
		l := cri.Listing{}
		for line := range strings.Lines(d.Input) {
			p, c, err := parseSandbox(line)
			if err != nil {
				return err
			}
			l.Sandboxes = append(l.Sandboxes, *p)
			if c != nil {
				l.Containers = append(l.Containers, *c)
			}
		}
		index := read.NewIndex(l)
		s.part.OnPods(index)
		s.store.SetRuntime(index)
	case "objects":
		text := "[" + strings.Join(strings.Split(strings.TrimSpace(d.Input), "\n"), ",") + "]"
		by := podstore.ByRoot
		if len(d.CmdArgs) > 0 {
			by = podstore.ByMember
		}
		if _, _, err := s.store.Put(strings.NewReader(text), true, by); err != nil {
			return err
		}
	case "manifests":
		var all []*v1.Pod
		for line := range strings.Lines(d.Input) {
			p, _, err := podjson.Manifest([]byte(line))
			if err != nil {
				return err
			}
			all = append(all, podjson.Trim(p))
		}
		s.store.SetManifests(all)
	case "conditions":
		s.conditions = nil
		for _, a := range d.CmdArgs {
			s.conditions = append(s.conditions, eviction.Condition(a.Key))
		}
	case "kubelet":
		s.kubelet = d.CmdArgs[0].Key == "on"
	case "kills":
		for _, a := range d.CmdArgs {
			s.kills[a.Key] = a.Vals[0]
		}
		s.part.Changed()
	default:
		return fmt.Errorf("unknown command %q", d.Cmd)
	}
	select {
	case <-s.store.Changed():
		s.part.OnObjects(s.store.Snapshot())
	default:
	}
	return nil
}

func (s *script) asks(d *datadriven.TestData) (string, error) {
	var b strings.Builder
	for line := range strings.Lines(d.Input) {
		switch d.Cmd {
		case "left":
			s.a.SandboxRemoved(strings.TrimSpace(line))
		case "refuse":
			p, _, err := parseSandbox(line)
			if err != nil {
				return "", err
			}
			why := s.a.Reject(s.now, p, "")
			if why == "" {
				why = p.Name + " is let in"
			}
			fmt.Fprintln(&b, why)
		default:
			var p v1.Pod
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				return "", err
			}
			r, err := s.a.Ask(s.t.Context(), &p, podstore.ByRoot)
			fmt.Fprintln(&b, r, err)
		}
	}
	if b.Len() == 0 {
		return "ok", nil
	}
	return b.String(), nil
}

// parseSandbox parses "NAMESPACE/NAME CLASS|?", then cpu=MILLIS, memory=QUANTITY (its limit;
// its-cpu and its-memory: the container's only), overhead=QUANTITY, uid=UID, source=S, gone, bare
// (no container) or an annotation. Its UID is its name unless uid= is given.
func parseSandbox(line string) (*cri.PodSandbox, *cri.Container, error) {
	f := strings.Fields(line)
	ns, name, ok := strings.Cut(f[0], "/")
	if !ok || len(f) < 2 {
		return nil, nil, fmt.Errorf("%q: want NAMESPACE/NAME CLASS", line)
	}
	p := &cri.PodSandbox{ID: "s-" + name, UID: name, Namespace: ns, Name: name, Ready: true, Annotations: map[string]string{}}
	c := &cri.Container{ID: "c-" + name, SandboxID: p.ID, Name: "c", State: cri.Running}
	for _, word := range f[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "cpu", "its-cpu":
			q := resource.MustParse(value)
			shares := uint64(q.MilliValue()) * 1024 / 1000
			if c.CPUShares = &shares; key == "cpu" {
				p.CPUShares = &shares
			}
		case "memory", "its-memory", "overhead":
			q := resource.MustParse(value)
			bytes := uint64(q.Value())
			switch key {
			case "overhead":
				p.Overhead = &bytes
			case "memory":
				p.MemoryLimit, c.MemoryLimit = &bytes, &bytes
			default:
				c.MemoryLimit = &bytes
			}
		case "uid":
			p.UID = value
		case "source":
			p.Annotations[annotationSource] = value
		case "gone":
			p.Ready, c = false, nil
		case "bare":
			c = nil
		default:
			p.Annotations[key] = value
		}
	}
	if class := map[string]string{"be": "besteffort/", "bu": "burstable/", "gu": ""}; f[1] != "?" {
		p.CgroupParent = "/kubepods/" + class[f[1]] + "pod" + p.UID
	}
	if c != nil && f[1] == "gu" {
		adj := int64(-997)
		c.OOMScoreAdj = &adj
	}
	return p, c, nil
}

func (s *script) held() string {
	n, err := s.a.State(s.now)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, of := range []struct {
		what string
		pods []admit.Held
	}{{"", n.Pods}, {"let in: ", n.Reservations}} {
		slices.SortFunc(of.pods, func(x, y admit.Held) int { return strings.Compare(string(x.UID), string(y.UID)) })
		for _, h := range of.pods {
			fmt.Fprintf(&b, "%s%s/%s %s", of.what, h.Namespace, h.Name, h.QOS)
			for _, name := range slices.Sorted(maps.Keys(h.Requests)) {
				fmt.Fprintf(&b, " %s=%d", name, h.Requests[name])
			}
			if h.Priority.OK {
				fmt.Fprintf(&b, " priority=%d", h.Priority.V)
			}
			for _, is := range []struct {
				word string
				so   bool
			}{{" static", h.Static}, {" spared", h.Protected}, {" ending", h.Ending}} {
				if is.so {
					b.WriteString(is.word)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func (s *script) counts() string {
	g := s.part.State(true)
	return fmt.Sprintf("enforced %v: admitted %d, refused %d, observed %d, unknown %d, reasons %v\n", g.Enforced, g.Admitted, g.Refused,
		g.Observed, g.Unknown, g.Reasons)
}
