package read

import (
	"path"
	"strings"
	"testing"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/stats"
)

// Each cgroup below the pods' of a real CRI-O is that of a container, a sandbox or a monitor, by its
// name, and each running container has one, in its pod's.
func TestCgroupsOfARecordedCRIO(t *testing.T) {
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
		pods := map[string]string{} // UIDs by the ID of a sandbox or container
		for _, s := range l.Sandboxes {
			pods[s.ID] = s.UID
		}
		for _, one := range l.Containers {
			pods[one.ID] = one.PodUID
		}
		found := map[string]bool{}
		for line := range strings.Lines(critest.Recorded(t, name)["cgroups"]) {
			group, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			pod, ok := stats.ParsePodCgroup(strings.Trim(path.Dir(path.Dir(group)), "./"), path.Base(path.Dir(group)))
			if !ok {
				continue // a pod's, or above
			}
			id := containerID(path.Base(group))
			if of, monitor := strings.CutPrefix(id, "crio-conmon-"); monitor {
				if idOf(path.Base(group)) != "" || pods[of] != pod.UID {
					t.Errorf("%s: monitor %s in pod %s counts as a container, or is another pod's", name, id, pod.UID)
				}
				continue
			}
			if uid := pods[id]; uid != pod.UID || idOf(path.Base(group)) != id || found[id] {
				t.Errorf("%s: cgroup %s is of %q, pod %q, want an object of pod %s", name, group, id, uid, pod.UID)
			}
			found[id] = true
		}
		for _, one := range l.Containers {
			if one.Running && !found[one.ID] {
				t.Errorf("%s: container %s has no cgroup", name, one.ID)
			}
		}
	}
}
