package garbage

import (
	"slices"
	"testing"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/reclaim"
)

// Of the images of a real CRI-O, the one that containers run from is in use, and each of them names
// it exactly. The image of sandboxes without a process is pinned, and the runtime's configuration
// names it.
func TestImagesInUseOfARecordedCRIO(t *testing.T) {
	for _, name := range []string{critest.CRIOSystemd, critest.CRIOCgroupfs} {
		c, err := cri.Dial(critest.StartRecorded(t, name).Endpoint(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		l, err := cri.NewLister(c).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		images, err := c.ListImages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		look, texts := &reclaim.Look{}, newTexts(nil)
		for i := range l.Containers {
			look.Containers = append(look.Containers, texts.container(&l.Containers[i]))
		}
		for i := range images {
			look.Images = append(look.Images, imageOf(&images[i]))
		}
		if left := reclaim.Unidentified(look.Containers, look.Images); len(left) > 0 || len(look.Containers) != 5 {
			t.Errorf("%s: %d containers, of which %d name no image exactly, want 5 and none", name, len(look.Containers), len(left))
		}
		inUse := func() (names []string) {
			used := reclaim.UsedIn(look)
			for i := range images {
				if image := imageOf(&images[i]); used.Image(&image) {
					names = append(names, images[i].RepoTags...)
				}
			}
			return names
		}
		if got := inUse(); !slices.Equal(got, []string{"localhost/workload:1"}) {
			t.Errorf("%s: images in use by containers = %q", name, got)
		}
		if look.ImagesInUse, err = c.SandboxImages(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := inUse(); !slices.Equal(got, []string{"localhost/pause:1", "localhost/workload:1"}) {
			t.Errorf("%s: images in use with the configuration's = %q", name, got)
		}
	}
}
