package reclaim

import (
	"maps"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestDetect(t *testing.T) {
	three := []Image{{ID: "img0"}, {ID: "img1", Names: []string{"name:1"}}, {ID: "img2"}}
	uses := func(refs ...string) Used {
		return UsedIn(&Look{Containers: []Container{{State: Exited, Images: refs}}})
	}
	for _, test := range []struct {
		name   string
		before Records
		images []Image
		used   Used
		want   Records
	}{
		// G01: new images are first detected now, used images were last used now
		// (TestDetectImagesInitialDetect).
		{"G01", nil, three, uses("name:1", "img2"), Records{"img0": {FirstDetected: now}, "img1": {now, now}, "img2": {now, now}}},
		// G02: an image that is no longer used keeps its last use (TestDetectImagesContainerStopped).
		{"G02", Records{"img0": {ago(time.Hour), time.Time{}}, "img1": {ago(time.Hour), ago(time.Minute)}}, three[:2], Used{},
			Records{"img0": {ago(time.Hour), time.Time{}}, "img1": {ago(time.Hour), ago(time.Minute)}}},
		// G03: an image that is no longer listed is dropped (TestDetectImagesWithRemovedImages).
		{"G03", Records{"img0": {ago(time.Hour), now}, "img1": {ago(time.Hour), now}}, nil, Used{}, Records{}},
		{"a record without a time", Records{"img0": {}}, three[:1], Used{}, Records{"img0": {FirstDetected: now}}},
		{"a clock that was set back", Records{"img0": {ago(-time.Hour), ago(-time.Hour)}}, three[:1], Used{}, Records{"img0": {now, now}}},
	} {
		before := maps.Clone(test.before)
		if got := test.before.Detect(now, test.images, test.used); !maps.Equal(got, test.want) {
			t.Errorf("records in case %q = %v, want %v", test.name, got, test.want)
		}
		if !maps.Equal(before, test.before) {
			t.Errorf("case %q: Detect() changed its receiver", test.name)
		}
	}
}

func TestImageUseByAnyReference(t *testing.T) {
	image := &Image{ID: "sha256:aa", Names: []string{"docker.io/library/a:1", "docker.io/library/a@sha256:bb"}}
	for ref, want := range map[string]bool{"sha256:aa": true, "aa": true, "docker.io/library/a:1": true, "other.io/a@sha256:bb": true, "sha256:bb": true,
		"docker.io/library/a:2": false, "": false, "sha256:": false, "a": false} {
		u := UsedIn(&Look{ImagesInUse: []string{ref}})
		if got := u.Image(image); got != want {
			t.Errorf("image with reference %q in use = %v, want %v", ref, got, want)
		}
		if u.Image(&Image{}) {
			t.Errorf("reference %q: an image without a name is in use", ref)
		}
	}
}

// A short name matches the image with the full name, and an ID prefix the image with the ID.
func TestImageUseByShortReferences(t *testing.T) {
	for _, c := range []struct {
		ref, listed string
		want        bool
	}{
		{"pause:3.10", "docker.io/library/pause:3.10", true},
		{"pause", "docker.io/library/pause:latest", true},
		{"rancher/mirrored-pause:3.6", "docker.io/rancher/mirrored-pause:3.6", true},
		{"docker.io/pause", "docker.io/library/pause:latest", true},
		{"index.docker.io/library/pause:1", "docker.io/library/pause:1", true},
		{"registry.k8s.io/pause", "registry.k8s.io/pause:latest", true},
		{"localhost/a", "localhost/a:latest", true},
		{"localhost:5000/a", "localhost:5000/a:latest", true},
		{"docker.io/library/a:1", "a:1", true},
		{"localhost/a", "docker.io/localhost/a:latest", false},
		{"quay.io/pause:3.10", "docker.io/library/pause:3.10", false},
		{"pause:3.1", "docker.io/library/pause:3.10", false},
		{"3f57d9401f8d", "x:1", true},
		{"sha256:3f57d9401f8d", "x:1", true},
		{"3f57d9401f8e", "x:1", false},
		{"3f5", "x:1", false},
	} {
		image := &Image{ID: "sha256:3f57d9401f8d42f986df300f0c69192fc41da28ccc8d797829467780db3dd741", Names: []string{c.listed}}
		u := UsedIn(&Look{ImagesInUse: []string{c.ref}})
		if got := u.Image(image); got != c.want {
			t.Errorf("%q in use, %q listed: got %v, want %v", c.ref, c.listed, got, c.want)
		}
	}
}

func TestImagesListedTwiceAreMerged(t *testing.T) {
	p := DefaultPolicy().Plan(now, &Look{Trigger: DiskPressure, Records: Records{"a": {FirstDetected: ago(time.Hour)}, "b": {FirstDetected: ago(time.Hour)}, "c": {FirstDetected: ago(time.Hour)}},
		Images:      []Image{{ID: "a"}, {ID: "a", Pinned: true}, {ID: "b"}, {ID: "b", Names: []string{"b:1"}}, {ID: "c", RuntimeHandler: "kata"}, {ID: "c"}},
		ImagesInUse: []string{"b:1"}})
	if len(p.Steps) != 1 || p.Steps[0].ID != "c" || p.Steps[0].RuntimeHandler != "kata" {
		t.Errorf("steps = %+v, want only c, which is neither pinned nor in use", p.Steps)
	}
}

// A container is identified by a listed ID or digest, and by a name only if it has neither.
func TestUnidentified(t *testing.T) {
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	l := &Look{Images: []Image{{ID: a, Names: []string{"docker.io/library/app:1", "docker.io/library/app@" + b}}}}
	for want, refs := range map[bool][][]string{
		false: {{a}, {strings.TrimPrefix(a, "sha256:"), "other:1"}, {"app:1"}, {"other.io/app@" + b}, {}, {"", a}},
		true:  {{"sha256:" + strings.Repeat("c", 64), "app:1"}, {"other:1"}, {strings.Repeat("a", 12)}},
	} {
		for _, images := range refs {
			l.Containers = []Container{{ID: "c", Images: images}}
			if got := len(Unidentified(l.Containers, l.Images)) > 0; got != want {
				t.Errorf("container with references %q unidentified = %v, want %v", images, got, want)
			}
		}
	}
}
