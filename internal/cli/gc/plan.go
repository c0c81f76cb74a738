package gc

import (
	"errors"
	"fmt"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/gc/gcfiles"
)

// fromFiles plans from the files of a directory and prints the plan. If a part of the policy is
// invalid, it prints the plan without that part and returns an error.
func fromFiles(dir string, as output.Format, stdout *terminal.Screen) error {
	node, err := gcfiles.Read(dir)
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	plan := node.Plan()
	if as.Data() {
		err = as.Encode(stdout, documentOf(&plan), false)
	} else {
		err = printPlan(stdout, &plan, as == output.AsWide)
	}
	for _, check := range []struct {
		part string
		err  error
	}{{"container", node.Policy.Container.Validate()}, {"image", node.Policy.Image.Validate()}} {
		if check.err != nil {
			err = errors.Join(err, fmt.Errorf("gc: %s: policy.%s: %w", dir+"/"+gcfiles.GCFile, check.part,
				check.err))
		}
	}
	return err
}
