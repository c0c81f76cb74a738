package gc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/gc/gcfiles"
)

// The scripts in testdata/scripts write a directory of files and plan from it; go test ./internal/cli/gc -run Scripts -rewrite updates the
// expected answers, to be reviewed as a diff. The input of plan and table has a line for each object:
//
//	container ID pod=UID name=NAME state=E|R|C|U created=TIME [attempt=N] [sandbox=ID] [image=REF] [imageId=ID] [imageRef=REF]
//	sandbox ID pod=UID state=R|N created=TIME [attempt=N]
//	image ID [size=BYTES] [pinned] [first=TIME] [used=TIME] [name=REF]
//	pod UID Active|Terminated|Evicted
//	log NAME
//	inUse REF
//	container.FIELD or image.FIELD VALUE   of the policy
//	fs CAPACITY AVAILABLE
//	FIELD VALUE                            of gc.json, as JSON
//
// A TIME is seconds after 2026-01-01, or a duration before now, "-1h"; now is 2026-01-01T02:00:00Z. podsSynced is true unless the
// script sets it. raw FILE replaces one file by the input, and plans.
func TestGCScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata/scripts, error %v", err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &gcScript{dir: t.TempDir()}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
		})
	}
}

type object = map[string]any

var gcEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var gcNow = gcEpoch.Add(2 * time.Hour)

type gcScript struct{ dir string }

func (s *gcScript) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "raw" {
		name := d.CmdArgs[0].Key
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(d.Input), 0o600); err != nil {
			t.Fatal(err)
		}
		return s.plan(true)
	}
	f := &gcDir{gc: object{"now": gcNow.Format(time.RFC3339), "podsSynced": true}}
	for line := range strings.Lines(d.Input) {
		if words := strings.Fields(line); len(words) > 0 {
			f.line(d.Fatalf, t, words)
		}
	}
	f.write(t, s.dir)
	if d.Cmd == "table" {
		return s.plan(false)
	}
	return s.plan(true)
}

// plan plans and formats the output; empty lists of the JSON are left out.
func (s *gcScript) plan(inJSON bool) string {
	var stdout bytes.Buffer
	as := output.AsTable
	if inJSON {
		as = output.AsJSON
	}
	err := fromFiles(s.dir, as, terminal.Fixed(&stdout, 0))
	out := stdout.String()
	var plan planDocument
	if inJSON && json.Unmarshal(stdout.Bytes(), &plan) == nil {
		out = ""
		for _, l := range []struct {
			name string
			of   []string
		}{{"containers", plan.RemoveContainers}, {"sandboxes", plan.RemoveSandboxes}, {"logs", plan.RemoveLogs}, {"images", plan.RemoveImages}, {"stop first", plan.StopFirst}} {
			if l.of == nil {
				out += l.name + " is null\n"
			} else if len(l.of) > 0 {
				out += l.name + ": " + strings.Join(l.of, " ") + "\n"
			}
		}
		for _, text := range plan.Errors {
			out += "error: " + text + "\n"
		}
		if out == "" {
			out = "nothing\n"
		}
	}
	if err != nil {
		out += "exit 1: jettison: " + strings.ReplaceAll(output.OneLine(err.Error()), s.dir, "DIR") + "\n"
	}
	return strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == '\n' }), "\n") + "\n"
}

// gcDir is the content of a directory of files.
type gcDir struct {
	gc                            object
	containers, sandboxes, images []object
}

func (f *gcDir) line(fatalf func(testing.TB, string, ...any), t *testing.T, words []string) {
	of := map[string]string{}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		of[key] = value
	}
	nanos := func(text string) string { return strconv.FormatInt(gcTime(t, text).UnixNano(), 10) }
	states := map[string]string{"E": "CONTAINER_EXITED", "R": "CONTAINER_RUNNING", "C": "CONTAINER_CREATED", "U": "CONTAINER_UNKNOWN"}
	attempt, _ := strconv.Atoi(of["attempt"])
	rest := strings.Join(words[1:], " ")
	add := func(key string, v any) { list, _ := f.gc[key].([]any); f.gc[key] = append(list, v) }
	switch kind := words[0]; kind {
	case "container":
		c := object{"id": words[1], "podSandboxId": of["sandbox"], "metadata": object{"name": of["name"], "attempt": attempt}, "image": object{"image": of["image"]},
			"imageRef": of["imageRef"], "imageId": of["imageId"], "state": states[of["state"]], "createdAt": nanos(of["created"])}
		if of["pod"] != "" {
			c["labels"] = object{"io.kubernetes.pod.uid": of["pod"]}
		}
		f.containers = append(f.containers, c)
	case "sandbox":
		f.sandboxes = append(f.sandboxes, object{"id": words[1], "metadata": object{"name": "n-" + of["pod"], "namespace": "default", "uid": of["pod"], "attempt": attempt},
			"state": map[string]string{"R": "SANDBOX_READY", "N": "SANDBOX_NOTREADY"}[of["state"]], "createdAt": nanos(of["created"])})
	case "image":
		f.image(t, words[1], of)
	case "pod":
		add("pods", object{"uid": words[1], "phase": words[2]})
	case "log":
		add("logDir", rest)
	case "inUse":
		add("imagesInUse", rest)
	case "fs":
		f.gc["imageFs"] = object{"capacityBytes": bytesOf(t, words[1]), "availableBytes": bytesOf(t, words[2])}
	default:
		into := f.gc
		if part, field, ok := strings.Cut(kind, "."); ok {
			policy := child(child(f.gc, "policy"), part)
			into, kind = policy, field
		}
		var v any
		if err := json.Unmarshal([]byte(rest), &v); err != nil {
			fatalf(t, "%s: %v", rest, err)
		}
		into[kind] = v
	}
}

func (f *gcDir) image(t *testing.T, id string, of map[string]string) {
	_, pinned := of["pinned"]
	i := object{"id": id, "pinned": pinned}
	if of["size"] != "" {
		i["size"] = strconv.FormatInt(bytesOf(t, of["size"]), 10)
	}
	if of["name"] != "" {
		i["repoTags"] = []string{of["name"]}
	}
	f.images = append(f.images, i)
	record := object{}
	for key, field := range map[string]string{"first": "firstDetected", "used": "lastUsed"} {
		if of[key] != "" {
			record[field] = gcTime(t, of[key]).Format(time.RFC3339Nano)
		}
	}
	if len(record) > 0 {
		child(f.gc, "images")[id] = record
	}
}

func bytesOf(t *testing.T, text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatalf("quantity %q in a script: %v", text, err)
	}
	return q.Value()
}

func child(of object, name string) object {
	if of[name] == nil {
		of[name] = object{}
	}
	return of[name].(object)
}

func gcTime(t *testing.T, text string) time.Time {
	if seconds, err := strconv.Atoi(text); err == nil && !strings.HasPrefix(text, "-") {
		return gcEpoch.Add(time.Duration(seconds) * time.Second)
	}
	before, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%q is not a time of a script", text)
	}
	return gcNow.Add(before)
}

func (f *gcDir) write(t testing.TB, dir string) {
	for name, of := range map[string]object{
		gcfiles.GCFile: f.gc, gcfiles.ContainersFile: {"containers": append([]object{}, f.containers...)},
		gcfiles.SandboxesFile: {"items": append([]object{}, f.sandboxes...)}, gcfiles.ImagesFile: {"images": append([]object{}, f.images...)},
	} {
		text, err := json.MarshalIndent(of, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Each case of the kubelet's tests of garbage collection is the heading of a script or a test.
func TestEveryCaseIsCovered(t *testing.T) {
	var text []byte
	for _, pattern := range []string{"testdata/scripts/*.txt", "../../../reclaim/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
		}
	}
	for prefix, n := range map[string]int{"G": 15, "H": 13, "I": 7} {
		for i := range n {
			id := fmt.Sprintf("%s%02d", prefix, i+1)
			if !regexp.MustCompile(`(?m)^\s*(?:#|//) ` + id + `\b`).Match(text) {
				t.Errorf("no script or test for %s", id)
			}
		}
	}
}
