package gcfiles

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"jettison/internal/base/strict"
	"jettison/reclaim"
	"jettison/stats"
)

// whole is the output of crictl 1.33, with repetitions removed, and a gc.json.
var whole = map[string]string{
	ContainersFile: `{
  "containers": [
    {
      "id": "c1",
      "podSandboxId": "s1",
      "metadata": {
        "name": "main",
        "attempt": 2
      },
      "image": {
        "image": "sha256:aa",
        "annotations": {
        },
        "userSpecifiedImage": "busybox:1",
        "runtimeHandler": ""
      },
      "imageRef": "docker.io/library/busybox@sha256:dd",
      "state": "CONTAINER_EXITED",
      "createdAt": "1767225600000000001",
      "labels": {
        "io.kubernetes.container.name": "main",
        "io.kubernetes.pod.uid": "u1"
      },
      "annotations": {
      },
      "imageId": "sha256:aa"
    }
  ]
}`,
	SandboxesFile: `{
  "items": [
    {
      "id": "s1",
      "metadata": {"name": "web", "uid": "u1", "namespace": "default", "attempt": 1},
      "state": "SANDBOX_NOTREADY",
      "createdAt": "1767225600000000000",
      "labels": {},
      "annotations": {},
      "runtimeHandler": ""
    }
  ]
}`,
	ImagesFile: `{
  "images": [
    {
      "id": "sha256:aa",
      "repoTags": ["docker.io/library/busybox:1"],
      "repoDigests": ["docker.io/library/busybox@sha256:dd"],
      "size": "2241234",
      "uid": null,
      "username": "",
      "spec": {"image": "", "annotations": {}, "runtimeHandler": "kata"},
      "pinned": true
    }
  ]
}`,
	GCFile: `{
  "now": "2026-01-01T12:00:00Z",
  "policy": {
    "container": {"minAge": "1m", "maxContainers": 100},
    "image": {"highThresholdPercent": 90, "maxAge": "24h"}
  },
  "imageFs": {"capacityBytes": 1000, "availableBytes": "100"},
  "pods": [{"uid": "u1", "phase": "Terminated"}],
  "podsSynced": true,
  "images": {"sha256:aa": {"firstDetected": "2026-01-01T00:00:00.5Z"}},
  "imagesInUse": ["pause:3.10"],
  "agentStarted": "2026-01-01T00:00:00Z",
  "logDir": ["default_web_u1"],
  "trigger": "diskPressure"
}`,
}

func directory(t testing.TB, change map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range whole {
		if other, ok := change[name]; ok {
			text = other
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead(t *testing.T) {
	n, err := Read(directory(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	policy := reclaim.DefaultPolicy()
	policy.Container.MinAge, policy.Container.MaxContainers = time.Minute, 100
	policy.Image.HighThresholdPercent, policy.Image.MaxAge = 90, 24*time.Hour
	year := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want := &Node{Now: year.Add(12 * time.Hour), Policy: policy, Look: reclaim.Look{
		Trigger: reclaim.DiskPressure,
		Containers: []reclaim.Container{{ID: "c1", SandboxID: "s1", PodUID: "u1", Name: "main", Attempt: 2, State: reclaim.Exited, CreatedAt: time.Unix(0, year.UnixNano()+1),
			Images: []string{"sha256:aa", "docker.io/library/busybox@sha256:dd", "sha256:aa", "busybox:1"}}},
		Sandboxes: []reclaim.Sandbox{{ID: "s1", PodUID: "u1", Namespace: "default", Name: "web", Attempt: 1, NotReady: true, CreatedAt: time.Unix(0, year.UnixNano())}},
		Images:    []reclaim.Image{{ID: "sha256:aa", Names: []string{"docker.io/library/busybox:1", "docker.io/library/busybox@sha256:dd"}, RuntimeHandler: "kata", Pinned: true, Bytes: stats.Some[uint64](2241234)}},
		LogDir:    []string{"default_web_u1"}, Pods: map[string]reclaim.Phase{"u1": reclaim.Terminated}, PodsSynced: true,
		Records:     reclaim.Records{"sha256:aa": {FirstDetected: year.Add(500 * time.Millisecond)}},
		ImagesInUse: []string{"pause:3.10"}, ImageFs: stats.Some(reclaim.ImageFsSize{CapacityBytes: 1000, AvailableBytes: 100}), AgentStarted: year,
	}}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("Read returned\n%+v\nwant\n%+v", n, want)
	}
	least := map[string]string{ContainersFile: `{"containers":[]}`, SandboxesFile: `{"items":[]}`, ImagesFile: `{"images":[]}`, GCFile: `{"now":"2026-01-01T12:00:00Z"}`}
	if n, err = Read(directory(t, least)); err != nil {
		t.Fatal(err)
	}
	if p := n.Plan(); n.Policy != reclaim.DefaultPolicy() || n.Look.PodsSynced || n.Look.ImageFs.OK || len(p.Steps)+len(p.Errors) > 0 {
		t.Errorf("minimal files: got %+v, plan %+v, want defaults and no steps", n, p)
	}
}

// An error of a file has its line and field.
func TestFaults(t *testing.T) {
	cases := []struct{ file, old, new, want string }{
		{ContainersFile, `"CONTAINER_EXITED"`, `"CONTAINER_PAUSED"`, `line 18: containers[0].state: "CONTAINER_PAUSED" is not CONTAINER_CREATED,`},
		{ContainersFile, `"CONTAINER_EXITED"`, `1`, `line 18: containers[0].state: want text, got a number`},
		{ContainersFile, `"state": "CONTAINER_EXITED",`, ``, `line 3: containers[0].state: missing`},
		{ContainersFile, `"1767225600000000001"`, `"soon"`, `line 19: containers[0].createdAt: "soon" is not a whole number`},
		{ContainersFile, `"1767225600000000001"`, `-1`, `line 19: containers[0].createdAt: "-1" is not a whole number from 0`},
		{ContainersFile, `"1767225600000000001"`, `"9223372036854775808"`, `line 19: containers[0].createdAt: "9223372036854775808" is not`},
		{ContainersFile, `"1767225600000000001"`, `{}`, `line 19: containers[0].createdAt: want a whole number, got an object`},
		{ContainersFile, `"createdAt": "1767225600000000001",`, ``, `line 3: containers[0].createdAt: missing`},
		{ContainersFile, `"name": "main",`, ``, `line 6: containers[0].metadata.name: missing`},
		{ContainersFile, `"id": "c1"`, `"id": ""`, `line 4: containers[0].id: missing`},
		{ContainersFile, `"id": "c1"`, `"id": "c1", "id": "c2"`, `line 4: containers[0].id: duplicate field`},
		{ContainersFile, `"containers"`, `"items"`, `line 1: containers: missing: want the output of crictl ps -a -o json`},
		{ContainersFile, whole[ContainersFile], `{"containers":[{"id":"a","state":"CONTAINER_EXITED","metadata":{"name":"x"},"createdAt":0},{"id":"a"}]}`, `line 1: containers[1].id: duplicate ID "a"`},
		{ContainersFile, whole[ContainersFile], `{"containers":null}`, `line 1: containers: missing`},
		{ContainersFile, whole[ContainersFile], ``, `line 1: the file ends too early`},
		{ContainersFile, "    }\n  ]\n}", "    }\n", `line 28: containers: the file ends too early`},
		{ContainersFile, `"labels": {`, `"labels": [`, `line 20: containers[0].labels: `},
		{SandboxesFile, `"SANDBOX_NOTREADY"`, `"READY"`, `line 6: items[0].state: "READY" is not SANDBOX_READY or SANDBOX_NOTREADY`},
		{SandboxesFile, `"metadata"`, `"meta"`, `line 3: items[0].metadata: missing`},
		{SandboxesFile, `"items"`, `"sandboxes"`, `line 1: items: missing: want the output of crictl pods -o json`},
		{ImagesFile, `"2241234"`, `"2M"`, `line 7: images[0].size: "2M" is not a whole number`},
		{ImagesFile, `"pinned": true`, `"pinned": "yes"`, `line 11: images[0].pinned: want true or false, got text`},
		{ImagesFile, `"id": "sha256:aa",`, ``, `line 3: images[0].id: missing`},
		{ImagesFile, `"images"`, `"image"`, `line 1: images: missing`},
		{GCFile, `"minAge"`, `"minAg"`, `line 4: policy.container.minAg: unknown field: did you mean "minAge"?`},
		{GCFile, `"podsSynced"`, `"podSynced"`, `line 9: podSynced: unknown field: did you mean "podsSynced"?`},
		{GCFile, `"phase"`, `"fase"`, `line 8: pods[0].fase: unknown field: did you mean "phase"?`},
		{GCFile, `"1m"`, `"soon"`, `line 4: policy.container.minAge: "soon" is not a duration`},
		{GCFile, `"1m"`, `60`, `line 4: policy.container.minAge: want a duration as text, got a number`},
		{GCFile, `100}`, `1.5}`, `line 4: policy.container.maxContainers: 1.5 is not a whole number of 32 bits`},
		{GCFile, `100}`, `9999999999}`, `line 4: policy.container.maxContainers: 9999999999 is not a whole number of 32 bits`},
		{GCFile, `"2026-01-01T12:00:00Z"`, `"today"`, `line 2: now: "today" is not an RFC 3339 time`},
		{GCFile, `"2026-01-01T12:00:00Z"`, `"1969-12-31T23:59:59Z"`, `line 2: now: "1969-12-31T23:59:59Z" is before 1970`},
		{GCFile, `"2026-01-01T12:00:00Z"`, `null`, `line 2: now: missing`},
		{GCFile, `"now": "2026-01-01T12:00:00Z",`, ``, `line 1: now: missing`},
		{GCFile, `"diskPressure"`, `"now"`, `line 14: trigger: "now" is not periodic or diskPressure`},
		{GCFile, `"Terminated"`, `"Dead"`, `line 8: pods[0].phase: "Dead" is not Active, Terminated or Evicted`},
		{GCFile, `"uid": "u1", `, ``, `line 8: pods[0].uid: missing`},
		{GCFile, `[{"uid": "u1"`, `[{"uid": "u1", "phase": "Active"}, {"uid": "u1"`, `line 8: pods[1].uid: duplicate ID "u1"`},
		{GCFile, `"capacityBytes": 1000`, `"capacityBytes": -1`, `line 7: imageFs.capacityBytes: "-1" is not a whole number`},
		{GCFile, `"capacityBytes": 1000, `, ``, `line 7: imageFs.capacityBytes: missing`},
		{GCFile, `, "availableBytes": "100"`, ``, `line 7: imageFs.availableBytes: missing`},
		{GCFile, `["default_web_u1"]`, `"default_web_u1"`, `line 13: logDir: want a list, got text`},
		{GCFile, `{"firstDetected"`, `{"first"`, `line 10: images.sha256:aa.first: unknown field`},
		{GCFile, `"podsSynced": true`, `"podsSynced": tru`, `line 9: podsSynced: not JSON`},
		{GCFile, `"trigger": "diskPressure"
}`, `"trigger": "diskPressure"
} {}`, `line 15: not JSON`},
		{GCFile, whole[GCFile], `[]`, `line 1: want an object, got a list`},
	}
	for _, test := range cases {
		changed := strings.Replace(whole[test.file], test.old, test.new, 1)
		if changed == whole[test.file] {
			t.Errorf("%s does not contain %q, the text to replace", test.file, test.old)
			continue
		}
		dir := directory(t, map[string]string{test.file: changed})
		_, err := Read(dir)
		var fault *strict.FieldError
		if !errors.As(err, &fault) {
			t.Errorf("%s with %q: got %v, want a fault: %s", test.file, test.new, err, test.want)
			continue
		}
		if want := filepath.Join(dir, test.file) + ": " + test.want; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s with %q:\ngot  %s\nwant %s...", test.file, test.new, err, want)
		}
	}
}

// A missing file and a pipe are errors that name the path.
func TestMissingOrIrregularFile(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"no such file":       os.Remove,
		"not a regular file": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		dir := directory(t, nil)
		path := filepath.Join(dir, SandboxesFile)
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error = %v, want one that names %s", name, err, path)
		}
	}
}

// FuzzRead replaces one of four valid files: the result is an error of one line, or a plan that removes no running container.
func FuzzRead(f *testing.F) {
	parsers := []struct {
		name  string
		parse func(*Node, []byte) error
	}{{GCFile, parseGC}, {ContainersFile, parseContainers}, {SandboxesFile, parseSandboxes}, {ImagesFile, parseImages}}
	for i, file := range parsers {
		f.Add(byte(i), []byte(whole[file.name]))
	}
	f.Add(byte(0), []byte(`{"now":"9999-12-31T23:59:59Z","policy":{"image":{"maxAge":"2562047h"}},"imageFs":{"capacityBytes":1,"availableBytes":9223372036854775807},"podsSynced":true}`))
	f.Add(byte(1), []byte(`{"containers":[{"id":"a","state":"CONTAINER_RUNNING","metadata":{"name":"x"},"createdAt":0},{"id":"b","state":"CONTAINER_UNKNOWN","metadata":{"name":"x"},"createdAt":"9223372036854775807"}]}`))
	f.Add(byte(2), []byte(`{"items":[{"id":"a","state":"SANDBOX_READY","metadata":{},"createdAt":1}]}`))
	f.Add(byte(3), []byte(`{"images":[{"id":"a","size":9000000000000000000},{"id":"a","pinned":true}]}`))
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		n := &Node{}
		for i, file := range parsers {
			of := []byte(whole[file.name])
			if int(which)%len(parsers) == i {
				of = text
			}
			if err := file.parse(n, of); err != nil {
				if text := faultIn("file", of, err).Error(); strings.Contains(text, "\n") || !strings.HasPrefix(text, "file: line ") {
					t.Fatalf("error has several lines, or no line number: %q", text)
				}
				return
			}
		}
		running := map[string]bool{}
		for _, c := range n.Look.Containers {
			running[c.ID] = c.State == reclaim.Running
		}
		p := n.Plan()
		for _, id := range p.IDs(reclaim.RemoveContainer) {
			if running[id] {
				t.Fatalf("plan removes running container %q", id)
			}
		}
	})
}
