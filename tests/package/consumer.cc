/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's C++ program: the installed headers are C++ too, and a bad argument has its status.
 */
#include <cstdio>
#include <memrun/memrun.h>

int main() {
  mr_graph *graph = nullptr;
  if (mr_graph_create(&graph) != MR_OK) {
    return 1;
  }
  mr_log_configure([](void *, mr_log_level, const char *line) { std::printf("C++: %s\n", line); },
                   nullptr, MR_LOG_ERROR);
  mr_tensor_desc desc = {};
  desc.size_bytes = sizeof desc;
  desc.name = "";
  mr_tensor_id tensor = 0;
  mr_status status = mr_graph_add_tensor(graph, &desc, &tensor);
  mr_graph_destroy(graph);
  std::printf("C++: %s\n", mr_status_name(status));
  return status == MR_INVALID ? 0 : 1;
}
