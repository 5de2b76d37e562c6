"""Misspelt options and sections of a parset: Rapthor ignores them, and so does the job. Pure."""

import difflib

from .machine import MACHINE_OPTIONS
from .parset import FILE_OPTIONS, Parset

_OTHER_OPTIONS = {
    "global": """
        data_colname dde_mode dir_working download_initial_skymodel download_initial_skymodel_radius
        download_initial_skymodel_server download_overwrite_skymodel final_data_fraction
        generate_initial_skymodel generate_initial_skymodel_data_fraction generate_initial_skymodel_radius
        input_ms ntimes_to_repeat_final_cycle regroup_input_skymodel selfcal_data_fraction
        separation_tolerance_arcsec""",
    "calibration": """
        bda_frequencybase bda_timebase correct_time_frequency_smearing dd_interval_factor
        dd_smoothness_factor fast_datause fast_freqstep_hz fast_smoothnessconstraint
        fast_smoothnessrefdistance fast_smoothnessreffrequency fulljones_freqstep_hz
        fulljones_smoothnessconstraint llssolver maxiter medium_datause medium_freqstep_hz
        medium_smoothnessconstraint medium_smoothnessrefdistance medium_smoothnessreffrequency
        onebeamperpatch parallelbaselines propagatesolutions sagecalpredict slow_datause slow_freqstep_hz
        slow_smoothnessconstraint solveralgorithm solverlbfgs_dof solverlbfgs_iter solverlbfgs_minibatches
        stepsigma stepsize tolerance use_image_based_predict use_included_skymodels use_wsclean_predict
        wsclean_predict_bw""",
    "imaging": """
        apply_diagonal_solutions average_visibilities bda_frequencybase bda_timebase cellsize_arcsec
        compress_final_images compress_selfcal_images correct_time_frequency_smearing dd_psf_grid dde_method
        disable_iquv_clean do_multiscale_clean filter_skymodel grid_center_dec grid_center_ra
        grid_nsectors_ra grid_width_dec_deg grid_width_ra_deg idg_mode image_cube_stokes_list
        local_rms_method local_rms_strength local_rms_window make_quv_images max_peak_smearing max_uv_lambda
        mgain min_uv_lambda normalization_reference_frequencies pol_combine_method reweight robust
        save_filtered_model_image save_image_cube save_residual_visibilities save_supplementary_images
        save_visibilities sector_center_dec_list sector_center_ra_list sector_width_dec_deg_list
        sector_width_ra_deg_list shared_facet_rw skip_corner_sectors skip_final_major_iteration
        source_finder taper_arcsec use_clean_mask""",
    "cluster": "",
}
"""The options of versions 2 and 3 that name neither files nor a machine, by section."""
_NEAR_OPTION, _NEAR_SECTION = 0.87, 0.7
"""How similar names must be (difflib): an option that only a newer version has is seldom so near."""


def spelling_questions(parset: Parset) -> list[str]:
    """Return one question for each option or section that Rapthor does not have, but nearly."""
    known = {
        section: {*text.split(), *MACHINE_OPTIONS.get(section, ())}
        for section, text in _OTHER_OPTIONS.items()
    }
    for option, section in FILE_OPTIONS.items():
        known[section].add(option)
    questions = []
    for section, options in parset.sections.items():
        if section not in known:
            if near := difflib.get_close_matches(section.lower(), known, 1, _NEAR_SECTION):
                questions.append(f"[{section}]: did you mean [{near[0]}]?")
            continue
        for option in sorted(options.keys() - known[section]):
            if places := [f"[{other}]" for other in known if option in known[other]]:
                questions.append(f"{option} in [{section}]: did you mean {' or '.join(places)}?")
            elif near := difflib.get_close_matches(option, known[section], 1, _NEAR_OPTION):
                questions.append(f"{option} in [{section}]: did you mean {near[0]}?")
    return questions
