int unseen; /* TODO: build folders are skipped */
