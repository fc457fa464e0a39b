/* SPDX-License-Identifier: Apache-2.0 */
int mr_thing_create(uint32_t count);
