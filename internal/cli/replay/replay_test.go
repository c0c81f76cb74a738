package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/internal/base/output"
	"jettison/internal/node/frames"
)

// The scripts in testdata/scripts replay frames like the command; go test ./internal/cli/replay -run Scripts -rewrite updates the expected
// answers, to be reviewed as a diff.
//
//	config                              fields of an AgentConfiguration
//	other                               the same, for diff
//	pods                                the pods of later frames, one a line: name, then fields (see podLine)
//	replay | diff                       frames, one a line: a time since the start, then fields (see frameLine)
//	raw                                 frames as JSON
//
// An answer has a line for each frame: time, conditions, met thresholds, then the actions.
func TestReplayScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata/scripts, error %v", err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &replayScript{dir: t.TempDir()}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
		})
	}
}

// play replays a file of frames and returns the output and the exit code of the command.
func play(t *testing.T, policy, other, path string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	o := options{path: path}
	var err error
	code = 2
	if o.policy, err = load(t.Context(), policy, &errs); err == nil && other != "" {
		o.other, err = load(t.Context(), other, &errs)
	}
	if err == nil {
		code = 1
		err = run(t.Context(), o, &out, &errs)
	}
	if err == nil {
		return out.String(), errs.String(), 0
	}
	fmt.Fprintln(&errs, "jettison:", output.OneLine(err.Error()))
	return out.String(), errs.String(), code
}

type object = map[string]any

type replayScript struct {
	dir   string
	pods  []object // of the Summary
	specs []object
	fresh bool // the next frame carries the pods' objects
}

var replayEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *replayScript) file(name string) string { return filepath.Join(s.dir, name) }

func (s *replayScript) run(t *testing.T, d *datadriven.TestData) string {
	write := func(name, text string) {
		if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	switch d.Cmd {
	case "config", "other":
		head := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"
		if strings.Contains(d.Input, "apiVersion") {
			head = ""
		}
		write(d.Cmd+".yaml", head+d.Input+"\n")
		return "ok\n"
	case "pods":
		s.pods, s.specs = nil, nil
		for line := range strings.Lines(d.Input) {
			stats, spec := podLine(d.Fatalf, t, strings.Fields(line))
			s.specs = append(s.specs, spec)
			if !strings.Contains(line, " unseen") {
				s.pods = append(s.pods, stats)
			}
		}
		return "ok\n"
	case "raw":
		write("frames.jsonl", d.Input+"\n")
	case "replay", "diff":
		s.fresh = true
		var lines []string
		for line := range strings.Lines(d.Input) {
			text, err := json.Marshal(s.frameLine(t, strings.Fields(line)))
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(text))
		}
		write("frames.jsonl", strings.Join(lines, "\n"))
	}
	other := ""
	if d.Cmd == "diff" {
		other = s.file("other.yaml")
	}
	stdout, stderr, code := play(t, s.file("config.yaml"), other, s.file("frames.jsonl"))
	out := ""
	for line := range strings.Lines(stdout) {
		if d.Cmd == "diff" {
			out += line
			continue
		}
		out += describeOutput(t, line)
	}
	if out += strings.ReplaceAll(stderr, s.dir+"/", ""); code != 0 {
		out += fmt.Sprintf("exit code %d\n", code)
	}
	return out
}

// describeOutput formats a line of the output. Every list must be present.
func describeOutput(t *testing.T, line string) string {
	var o frames.Output
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		t.Fatal(err)
	}
	if o.Conditions == nil || o.ThresholdsMet == nil || o.Reclaimed == nil || o.Evictions == nil || o.Ranking == nil || o.Admit == nil {
		t.Fatalf("output has a null list: %s", line)
	}
	since := func(text string) string {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return at.Sub(replayEpoch).String()
	}
	out := fmt.Sprintf("%s %v", since(o.Time), o.Conditions)
	for _, m := range o.ThresholdsMet {
		out += fmt.Sprintf(" %s %s of %s since %s;", m.Signal, m.Observed, m.Threshold, since(m.Since))
	}
	out += "\n"
	if len(o.Reclaimed) > 0 {
		out += fmt.Sprintf("  reclaimed %v\n", o.Reclaimed)
	}
	for _, e := range o.Evictions {
		out += fmt.Sprintf("  evicted %s/%s (%s) for %s, grace %d, %s: %q\n", e.Namespace, e.Name, e.UID, e.Signal, e.GracePeriodSeconds, e.Reason, e.Message)
	}
	if len(o.Ranking) > 0 {
		out += fmt.Sprintf("  ranking %v\n", o.Ranking)
	}
	for _, a := range o.Admit {
		out += fmt.Sprintf("  admit %s %v %s %q\n", a.UID, a.Admit, a.Reason, a.Message)
	}
	return out
}

func bytesOf(t *testing.T, text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatalf("quantity %q in a script: %v", text, err)
	}
	return q.Value()
}

// podLine returns the stats and the object of a pod. Fields: prio=0, req= and lim= of memory, esreq= and eslimit= of ephemeral storage;
// usage: mem=, rootfs=, logs=, rootfsi= (inodes), procs=; vol=NAME:USED[:SIZELIMIT[:Memory]]; static, mirror, tolerates; without stats:
// unseen; without the total disk use: nototal.
func podLine(fatalf func(testing.TB, string, ...any), t *testing.T, f []string) (stats, spec object) {
	resources := map[string]object{"requests": {}, "limits": {}}
	meta := object{"name": f[0], "namespace": "default", "uid": f[0]}
	container := object{"name": "c", "resources": resources}
	body := object{"containers": []object{container}}
	spec = object{"metadata": meta, "spec": body}
	used := object{"name": "c"}
	stats = object{"podRef": object{"name": f[0], "namespace": "default", "uid": f[0]}, "containers": []object{used}}
	total := int64(0)
	for _, field := range f[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "prio":
			body["priority"] = bytesOf(t, value)
		case "req":
			resources["requests"]["memory"] = value
		case "lim":
			resources["limits"]["memory"], resources["limits"]["cpu"] = value, "1"
		case "esreq":
			resources["requests"]["ephemeral-storage"] = value
		case "eslimit":
			resources["limits"]["ephemeral-storage"] = value
		case "mem":
			stats["memory"] = object{"workingSetBytes": bytesOf(t, value)}
		case "rootfs", "logs":
			used[key] = object{"usedBytes": bytesOf(t, value)}
			total += bytesOf(t, value)
		case "rootfsi":
			used["rootfs"] = object{"inodesUsed": bytesOf(t, value)}
		case "procs":
			stats["process_stats"] = object{"process_count": bytesOf(t, value)}
		case "vol":
			v := append(strings.Split(value, ":"), "", "")
			dir := object{"medium": v[3]}
			if v[2] != "" {
				dir["sizeLimit"] = v[2]
			}
			if v[3] != "Memory" {
				total += bytesOf(t, v[1])
			}
			stats["volume"] = []object{{"name": v[0], "usedBytes": bytesOf(t, v[1])}}
			body["volumes"] = []object{{"name": v[0], "emptyDir": dir}}
		case "static":
			meta["annotations"] = object{"kubernetes.io/config.source": "file"}
		case "mirror":
			meta["annotations"] = object{"kubernetes.io/config.mirror": "x"}
		case "tolerates":
			body["tolerations"] = []object{{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}}
		case "unseen", "nototal":
		default:
			fatalf(t, "unknown field %q of a pod", key)
		}
	}
	if !slices.Contains(f, "nototal") {
		stats["ephemeral-storage"] = object{"usedBytes": total}
	}
	return stats, spec
}

// frameLine returns a frame. Fields: a time since the start, then mem= and alloc= (available; the working set is 4Gi), nodefs=, imagefs=,
// containerfs= (of 100Gi), nodefsi=, imagefsi=, containerfsi= (of 100Mi inodes), pid=used/max, stats=1m (time of the values,
// default: the frame's), after.nodefs=16Gi and the like (values after a reclaim), layout=dedicated|split|one, kill=UID:why,
// fails=SOURCE:why, admit=UID,UID (of the pods), null, nopods (an empty list).
func (s *replayScript) frameLine(t *testing.T, f []string) object {
	now, err := time.ParseDuration(f[0])
	if err != nil {
		t.Fatal(err)
	}
	at := replayEpoch.Add(now)
	null, frame := false, object{"time": at.Format(time.RFC3339Nano)}
	summary, after := object{"node": object{}, "pods": s.pods}, object{"node": object{}, "pods": s.pods}
	if s.fresh {
		frame["pods"], s.fresh = s.specs, false
	}
	for _, field := range f[1:] {
		if text, ok := strings.CutPrefix(field, "stats="); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			at = replayEpoch.Add(d)
		}
	}
	for _, field := range f[1:] {
		key, value, _ := strings.Cut(field, "=")
		into := summary["node"].(object)
		if rest, ok := strings.CutPrefix(key, "after."); ok {
			key, into = rest, after["node"].(object)
			frame["afterReclaim"] = after
		}
		switch key {
		case "stats":
		case "null":
			null = true
		case "nopods":
			frame["pods"] = []object{}
		case "layout":
			frame["layout"] = object{"dedicatedImageFs": value != "one", "splitContainerFs": value == "split"}
		case "kill", "fails":
			what, why, _ := strings.Cut(value, ":")
			if key == "kill" {
				frame["killErrors"] = object{what: why}
			} else {
				frame["agent"] = object{"sourceErrors": object{what: why}}
			}
		case "admit":
			var asking []object
			for _, p := range s.specs {
				if slices.Contains(strings.Split(value, ","), p["metadata"].(object)["uid"].(string)) {
					asking = append(asking, p)
				}
			}
			frame["admit"] = asking
		default:
			nodeFigure(t, into, key, value, at)
		}
	}
	if frame["summary"] = summary; null {
		frame["summary"] = nil
	}
	return frame
}

// fsOf returns the file system of a field, also of a field about inodes.
func fsOf(key string) string {
	if strings.HasSuffix(key, "fsi") {
		return strings.TrimSuffix(key, "i")
	}
	return key
}

func nodeFigure(t *testing.T, node object, key, value string, at time.Time) {
	in := func(parent object, name string) object {
		if parent[name] == nil {
			parent[name] = object{}
		}
		return parent[name].(object)
	}
	var of object
	switch fsOf(key) {
	case "mem":
		of = in(node, "memory")
		of["availableBytes"], of["workingSetBytes"] = bytesOf(t, value), int64(4<<30)
	case "alloc":
		of = object{"availableBytes": bytesOf(t, value), "workingSetBytes": int64(4 << 30), "time": at.Format(time.RFC3339Nano)}
		node["systemContainers"] = []object{{"name": "pods", "memory": of}}
	case "pid":
		of = in(node, "rlimit")
		used, most, _ := strings.Cut(value, "/")
		of["curproc"], of["maxpid"] = bytesOf(t, used), bytesOf(t, most)
	case "nodefs":
		of = in(node, "fs")
	case "imagefs":
		of = in(in(node, "runtime"), "imageFs")
	case "containerfs":
		of = in(in(node, "runtime"), "containerFs")
	default:
		t.Fatalf("unknown field %q of a frame", key)
	}
	switch {
	case strings.HasSuffix(key, "fsi"):
		of["inodesFree"], of["inodes"] = bytesOf(t, value), int64(100<<20)
	case strings.HasSuffix(key, "fs"):
		of["availableBytes"], of["capacityBytes"] = bytesOf(t, value), int64(100<<30)
	}
	of["time"] = at.Format(time.RFC3339Nano)
}

// The example in docs/operate/read.md prints the output shown there.
func TestTheExampleOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/read.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## replay\n")
	if !found {
		t.Fatal("docs/operate/read.md has no section \"replay\"")
	}
	var blocks []string
	for i, part := range strings.Split(section, "\n```") {
		if lang, block, _ := strings.Cut(part, "\n"); i%2 == 1 && (lang == "yaml" || lang == "json") {
			blocks = append(blocks, block)
		}
	}
	values := func(block string) (out []any, lines string) {
		for d := json.NewDecoder(strings.NewReader(block)); d.More(); {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out, lines = append(out, v), lines+string(line)+"\n"
		}
		return out, lines
	}
	_, lines := values(blocks[1])
	config, file := filepath.Join(t.TempDir(), "config.yaml"), filepath.Join(t.TempDir(), "frames.jsonl")
	if err := os.WriteFile(config, []byte(blocks[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := play(t, config, "", file)
	if code != 0 {
		t.Fatalf("replay of the page's example ended with %d: %s", code, stderr)
	}
	got, _ := values(stdout)
	if want, _ := values(blocks[2]); !reflect.DeepEqual(got, want) {
		t.Errorf("replay prints %s, want the block of the page", stdout)
	}
}
