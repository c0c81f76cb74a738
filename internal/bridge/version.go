package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"jettison/internal/bridge/kube"
)

// minMinor is the first minor version of Kubernetes 1 with admission policies that can restrict a
// bridge to its node: the policies are stable, and tokens name their node (kube_features.go,
// ValidatingAdmissionPolicy and ServiceAccountTokenPodNodeInfo, v1.30).
const minMinor = 30

// server decides by the API server's version which objects are written.
type server struct {
	client *kube.Client
	status bool // Options.EvictedStatus
	log    *slog.Logger

	logOldVersion sync.Once
}

// canRestrict reports whether the API server can restrict a bridge to its node. If not, the bridge
// sends events only.
func (s *server) canRestrict(ctx context.Context) (bool, error) {
	minor, err := s.client.Minor(ctx)
	if err != nil {
		return false, err
	}
	if minor < minMinor {
		s.logOldVersion.Do(func() {
			//log: The API server is older than Kubernetes 1.30, so its admission policies cannot
			//  restrict a bridge to its node. The bridge sends events only, no pod statuses,
			//  conditions or load.
			//do: Upgrade the cluster to Kubernetes 1.30 or newer.
			s.log.Warn("API server too old, sending events only",
				"version", fmt.Sprint("1.", minor))
		})
		return false, nil
	}
	return true, nil
}

// writeStatus reports whether pod statuses are written.
func (s *server) writeStatus(ctx context.Context) (bool, error) {
	if !s.status {
		return false, nil
	}
	return s.canRestrict(ctx)
}
